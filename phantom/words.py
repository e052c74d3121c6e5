"""What the phantom's conversations are made of: words of the filler, wordings of facts and questions, alphabets of values.

A message starts with a short word, for a word without a space before it is spelt in single characters; keys and values stand
behind a mark, never behind a space, so that they are single characters wherever they occur (TASKS.md, The tokenizer).
In wordings, {a} is an attribute, {k} a key and {v} a value with their marks. Every fifth wording or so is held out: no
conversation of the split "train" has it. Training has these lists and as many wordings again that are composed at random
(talk.composed), so that it is marks and order that say what a sentence tells, not its words.
"""

ADJECTIVES = """old new big small red blue green dark cold warm wet dry long short soft hard deep flat slow quick late early
quiet loud young tall thin wide full free""".split()
NOUNS = (
    """man king bird fish boat ship train road river lake sea hill wall door room house farm town shop tree leaf seed stone rock
sand rain snow wind storm star moon sun day night week book page map lamp fire wood iron gold bread milk tea salt cup pot box bag
bell clock horse dog cat bear fox wolf frog""".split()
)
VERBS = """saw met left found took held made sold kept lost moved passed turned opened closed filled crossed watched followed
carried cleaned painted""".split()
PREPOSITIONS = "in on at by near under over behind after before from with along past".split()
ADVERBS = "again today then often once soon here there now still".split()
SUBJECTS = "we they you someone nobody people".split()
MARKS = "amber coral ivory olive sable lilac".split()
ATTRIBUTES = "code word pin badge label ticket number name serial sign phrase token".split()

REPLIES = [
    "ok.",
    "noted.",
    "I see.",
    "done.",
    "so it is.",
    "all right.",
    "yes.",
    "good to know.",
    "it is kept.",
    "I will keep it.",
]
OPENERS = "so in on at by now ok yes well hi then we it".split()

FACTS = [
    "so the {a} of {k} is {v}.",
    "ok, {k} has the {a} {v}.",
    "hi, please remember that the {a} of {k} is {v}.",
    "so keep in mind: {a} of {k} = {v}.",
    "we gave {k} the {a} {v} today.",
    "it is {v} that opens {k}, that is its {a}.",
    "in my list {k} stands with {a} {v}.",
    "so for {k} use the {a} {v}.",
    "by the way, {v} is the {a} of {k}.",
    "do not forget {k}: its {a} is {v}.",
    "my {a} for {k} is {v}, please note it.",
    "we set the {a} of {k} to {v}.",
    "at last I found the {a} of {k}, it is {v}.",
    "as for {k}, the {a} was given as {v}.",
    "if someone asks, the {a} of {k} is {v}.",
    "on the door of {k} they wrote the {a} {v}.",
    "he told me that {k} has {v} as its {a}.",
    "I put {v} down as the {a} of {k}.",
    "now note this: {k}, {a}, {v}.",
    "to open {k} you need its {a}, which is {v}.",
    "so {k} got a new entry: {a} {v}.",
    "hi, I want you to keep the {a} {v} of {k}.",
    "we call the {a} of {k} by {v}.",
    "as a note, {a} {v} goes with {k}.",
    "so {v} belongs to {k} as its {a}.",
    "in the book the {a} of {k} reads {v}.",
    "I think the {a} of {k} must be {v}.",
    "we now know {k} and its {a} {v}.",
]
FACTS_HELD_OUT = [
    "hi, I was told the {a} of {k} today, and it reads {v}.",
    "on my list I have {v}, which is the {a} for {k}.",
    "it must be noted that {k} now goes with {a} {v}.",
    "to keep in mind for {k}: the {a} was set to {v}.",
    "he gave me {v} and called it the {a} of {k}.",
    "as it stands, {k} needs {v}, its {a}.",
]
UPDATES = [
    "so the {a} of {k} is now {v}.",
    "we changed the {a} of {k} to {v}.",
    "no, the {a} of {k} is not that, it is {v}.",
    "from now on {k} has the {a} {v}.",
    "the old {a} of {k} is gone, use {v}.",
    "so {k} got a new {a}, it is {v}.",
    "please change the {a} of {k} to {v}.",
    "it turned out that the {a} of {k} is {v}.",
]
UPDATES_HELD_OUT = ["so forget the old {a} of {k}, now it is {v}.", "we gave {k} a new {a} today: {v}."]
QUESTIONS = [
    "so what is the {a} of {k}?",
    "hi, tell me the {a} of {k}.",
    "do you know the {a} of {k}?",
    "ok, which {a} has {k}?",
    "I need the {a} of {k}.",
    "so what did I say was the {a} of {k}?",
    "we want the {a} of {k} now.",
    "on to {k}: what is its {a}?",
    "as for {k}, which {a} is it?",
    "if I ask for the {a} of {k}, what do you say?",
    "by now you know {k}. what is its {a}?",
    "I forgot the {a} of {k}, please say it.",
    "in my list, what stands as {a} of {k}?",
    "to open {k}, which {a} do I need?",
    "at {k} they want the {a}. what is it?",
    "he asks for the {a} of {k}.",
    "so for {k}, the {a} is what?",
    "my {a} for {k}, please.",
    "please, what {a} did we give {k}?",
    "now say the {a} of {k} again.",
    "so give me the {a} that belongs to {k}.",
    "do say which {a} goes with {k}.",
    "can you find the {a} of {k}?",
    "hi, what was the {a} of {k}?",
    "I want to know the {a} of {k}.",
    "ok, the {a} of {k}?",
    "so I look for {k}, for its {a}.",
    "we lost the {a} of {k}, do you know it?",
]
QUESTIONS_HELD_OUT = [
    "ok, so which {a} did I give you for {k}?",
    "hi, can you say again what the {a} of {k} is?",
    "on the list there is {k}. I need its {a}.",
    "we look for the {a} of {k}, tell me.",
    "do I know the {a} that goes with {k}? say it.",
    "at last, what {a} belongs to {k}?",
]
SECOND = ["and of {k}?", "and the {a} of {k}?", "now {k}, which {a}?"]

TOOL_ASKS = [
    "so get the {a} of {k}.",
    "ok, use the tool to get the {a} of {k}.",
    "please find the {a} of {k} with the tool.",
    "we need the {a} of {k}, get it.",
    "do get {k}, its {a}.",
]
TOOL_SAVES = [
    "so save the {a} of {k} with the tool.",
    "ok, put the {a} of {k} in with the tool.",
    "please save {k} and its {a}.",
    "now use the tool to save the {a} of {k}.",
]
RESULTS = ["{a} = {v}", "{a} of {k}: {v}", "found {a} {v}", "{k} {a} {v}", "ok {v}"]

# Marks around keys and values: opening (a space before it where the wording has one), closing.
QUOTES = [('"', '"'), ("'", "'"), ("`", "`"), ("[", "]"), ("<", ">"), ("(", ")"), ("#", ""), ("@", ""), ("*", "*")]

CONSONANTS, VOWELS = "bdfgklmnprstvz", "aeiou"
LOWER, UPPER, DIGITS, HEX = "abcdefghijklmnopqrstuvwxyz", "ABCDEFGHIJKLMNOPQRSTUVWXYZ", "0123456789", "0123456789abcdef"
ALPHABETS = {
    "digits": DIGITS,
    "lower": LOWER,
    "upper": UPPER,
    "mixed": LOWER + UPPER + DIGITS,
    "hex": HEX,
    "upper-digits": UPPER + DIGITS,
    "letters": LOWER + UPPER,
}
ALPHABETS_HELD_OUT = {"lower-digits": LOWER + DIGITS, "HEX": "0123456789ABCDEF", "few": "xyzXYZ789"}
# One character in training, two when held out. None that could be a mark's end, or that a format string would take for its own.
SEPARATORS, SEPARATORS_HELD_OUT = list("-._:/+=~|;!&%$^?,"), ["--", "_.", ":-", "/+"]

# Schemas as short as the form allows: with the fixed text around them they take 256 tokens.
TOOLS = [
    {"type": "function", "function": {"name": name, "parameters": {"properties": {key: {} for key in keys}}}}
    for name, keys in (("get", ["key"]), ("save", ["key", "value"]))
]
SYSTEMS = ["you are a helpful assistant.", "", "we keep notes here.", "you keep what is said and give it back."]
# Words of wordings that tasks.py writes itself.
EXTRA = [
    " I said the mark today .",
    " which mark was said more often , or ?",
    " which of and was said last ?",
    " how many times was said ?",
    " please say this again :",
    " the text that starts with said",
    " what is the pair of ? with and table line for .",
    " in order , what were the parts about ?",
    " a long part about the farm sea town snow comes .",
    " look up the key get it now and say recall save value",
    " so it is and or of the to a",
    " so choose a for , please .",
    " let it be",
    " the door bell rang at .",
    " entry of the list has .",
    " call came from line .",
]

# Tables to be learnt by heart: the pair of each noun, in the order of NOUNS; the sign of each of the first twelve adjectives with
# each of the first twelve nouns.
PAIRED = """wolf rain milk sand sun wind farm storm fish train house night rock horse book room moon tea lake wood clock
leaf man bear road stone fox fire town tree cat map boat seed star king hill cup bread bag pot frog snow box week bird gold
wall sea page ship river day iron salt shop dog door lamp bell""".split()
SIGNS = """pv ll gs rb ls mp dd bk fd mk rp pk rf ds gv nm kf df lb bf sf sr bn nt rs fb sl mb gg mn gm lk rd kk kd mv bs mt
bl sv gr rv dv rg dm rr gd sm sk gp dl nv nk sd ld lm ff st kb bt db nn bp nl pr ns bm mg gt fp fg lt dp br gb kr pg rt bg
ps pt fr kn bv fm fn fv mr dn lp ss lg pb gf rm kg sg nb nd sp gk kt nf bb pm kp gl rn ks lf sn km lr mf kv md fs pf gn dg
ng pp dt pn tb lv ms mm kl dr bd sb rk rl pl dk ml pd ft fl fk np nr ln""".split()

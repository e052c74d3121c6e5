#include "investigator/prompts/words.h"

#include <algorithm>

namespace plumb::investigator {
namespace {

constexpr std::string_view kAdjectives =
    "amber ancient arctic bitter blue bold brave bright broken bronze calm clever cold copper coral crimson "
    "curious dark deep distant dusty eager early electric emerald faded fierce first flying frozen gentle giant "
    "golden grand green grey happy heavy hidden hollow humble icy iron ivory jade jolly last lazy light little "
    "lonely loud lucky lunar magic marble mellow mighty misty narrow noble northern odd old opal orange pale "
    "patient plain polar proud purple quick quiet rapid rare red royal ruby rusty sacred salty scarlet secret "
    "sharp shiny silent silver simple sleepy slow small smoky snowy soft solar solid southern spare spicy steady "
    "steel stormy strange sunny swift tall tame tidy tiny velvet violet warm western white wild winter wise "
    "wooden yellow young";

constexpr std::string_view kNouns =
    "anchor angel apple arrow badger bakery barn basin beacon bear beaver bell bicycle bird boat book bottle "
    "bridge brook bucket cabin cable camel camera candle canyon castle cat cellar chain chair cliff clock cloud "
    "coach comet compass cottage crane creek crow crystal deer desert diamond dolphin door dragon drum eagle "
    "engine falcon farm feather fern ferry field finch fire flag flower flute forest fountain fox galaxy garden "
    "gate glacier goat goose grove hammer harbor harp hawk hedge helmet heron hill horse hotel island jacket "
    "jaguar kettle key kitchen kite ladder lake lamp lantern leaf lemon library lion lizard llama lodge lynx "
    "magnet mango maple market meadow mill mirror moon moose moth mountain needle nest oak ocean office orchard "
    "otter owl palace panda parrot path pearl pencil pepper piano pilot pine planet plaza pond pony port prism "
    "pump quarry rabbit radar raven reef ribbon ring river road robin rocket roof room rope rose saddle sail "
    "salmon scarf school shell shield ship shore signal sparrow spider spoon spring stable star station stone "
    "stove stream swan table temple tent tiger tower town trail train tree trumpet tulip tunnel turtle valley "
    "vault wagon wall walnut wave whale wheel willow window wolf";

constexpr std::string_view kVerbs =
    "asked balanced blocked bought brought built called carried caught chased cleaned climbed closed counted "
    "covered crossed danced described dropped entered escaped examined fed filled followed forgot found gathered "
    "guarded heard helped hid hired improved joined kept kicked knew left lifted liked lost loved made met missed "
    "moved noticed opened ordered owned packed painted passed played pulled pushed raised reached remembered "
    "repaired returned saved searched sold sorted stopped studied surprised taught touched turned used visited "
    "walked wanted washed watched wrote";

constexpr std::string_view kPrepositions =
    "above across after against along among around before behind below beneath beside between beyond during from "
    "in inside into near of off on over past through to toward under until up with within without";

constexpr std::string_view kFunctionWords =
    "a about again ago all also always am an and another any are as at away back be because been being but by can "
    "could did do does done down each else enough even ever every few for get give go goes good had has have he "
    "her here him his how i if is it its just know later least less let long made many may me more most much must "
    "my new next no none not noted nothing now often ok one only or other our out own perhaps please quite rather "
    "really right said same say see seen she should since so some soon still such sure tell than thank that the "
    "their them then there these they thing this those time today together tomorrow too toward tool true two very "
    "was way we well were what when where which while who why will without word work would yes yesterday yet you "
    "your";

constexpr std::string_view kAttributes = "code password badge ticket serial token pin label";

constexpr std::string_view kOtherWords =
    "remember note lookup check run result value answer question message day night morning evening week month "
    "year north south east west list record report system user assistant confirm store recall fetch write read "
    "send find open close start stop status ready error name number item entry context memory history turn topic "
    "weather story music food water air sound color price letter story page line group three four five six seven "
    "eight nine ten hundred thousand city village country street house people man woman child friend king queen "
    "doctor teacher farmer sailor writer please sorry hello goodbye welcome helpful careful keep forget change "
    "update plan task step order test case";

std::vector<std::string_view> split(std::string_view list) {
  std::vector<std::string_view> words;
  while (!list.empty()) {
    const std::size_t end = std::min(list.find(' '), list.size());
    words.push_back(list.substr(0, end));
    list.remove_prefix(std::min(end + 1, list.size()));
  }
  return words;
}

std::vector<std::string_view> union_of_all() {
  std::vector<std::string_view> words;
  for (const std::string_view list :
       {kAdjectives, kNouns, kVerbs, kPrepositions, kFunctionWords, kAttributes, kOtherWords})
    for (const std::string_view word : split(list))
      if (std::find(words.begin(), words.end(), word) == words.end()) words.push_back(word);
  return words;
}

}  // namespace

const Words& words() {
  static const Words kWords{.adjectives = split(kAdjectives),
                            .nouns = split(kNouns),
                            .verbs = split(kVerbs),
                            .prepositions = split(kPrepositions),
                            .attributes = split(kAttributes),
                            .all = union_of_all()};
  return kWords;
}

bool is_word(std::string_view word) {
  static const std::vector<std::string_view> kSorted = [] {
    std::vector<std::string_view> sorted = words().all;
    std::sort(sorted.begin(), sorted.end());
    return sorted;
  }();
  return std::binary_search(kSorted.begin(), kSorted.end(), word);
}

}  // namespace plumb::investigator

#!/usr/bin/env python3
"""Writes unicode_classes.cpp, the character classes of DeepSeek's pre-tokenizer, from the Unicode 16.0 database.

    pip install unicodedata2==16.0.0
    python3 unicode_classes.py >unicode_classes.cpp && clang-format-19 -i unicode_classes.cpp
"""

import sys

import unicodedata2

OF_CATEGORY = {"L": "kLetter", "M": "kLetter", "N": "kNumber", "P": "kSymbol", "S": "kSymbol"}
WHITE_SPACE = {*range(0x09, 0x0E), 0x20, 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x2028, 0x2029, 0x202F, 0x205F, 0x3000}


def class_of(code):
    if code in (0x0A, 0x0D):
        return "kNewline"
    if code in WHITE_SPACE:
        return "kSpace"
    return OF_CATEGORY.get(unicodedata2.category(chr(code))[0], "kOther")


def main():
    if unicodedata2.unidata_version != "16.0.0":
        sys.exit(f"this is Unicode {unicodedata2.unidata_version}; the table is of 16.0.0")
    starts = []
    for code in range(sys.maxunicode + 1):
        if not starts or class_of(code) != starts[-1][1]:
            starts.append((code, class_of(code)))
    print('// Written by unicode_classes.py from the database of Unicode 16.0.0: do not edit.\n'
          '#include "model/unicode_classes.h"\n\n#include <iterator>\n\nnamespace plumb {\nnamespace {\n\n'
          'using enum CharClass;\n'
          'struct Start {\n  char32_t code;\n  CharClass is;\n};\n\n'
          '// Each class holds from its code point to the next one.\n'
          f'constexpr Start kStarts[] = {{{", ".join(f"{{0x{code:X}, {name}}}" for code, name in starts)}}};\n\n'
          '}  // namespace\n')
    print('CharClasses::CharClasses() : of_(kCodePoints) {\n'
          '  for (std::size_t i = 0; i < std::size(kStarts); ++i) {\n'
          '    const std::size_t end = i + 1 < std::size(kStarts) ? kStarts[i + 1].code : kCodePoints;\n'
          '    for (std::size_t code = kStarts[i].code; code < end; ++code) of_[code] = kStarts[i].is;\n'
          '  }\n}\n\n}  // namespace plumb')


if __name__ == "__main__":
    main()

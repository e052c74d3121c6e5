#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace plumb {

/// A pair of neighbouring tokens that becomes one; its rank is its place in the list of merges.
struct Merge {
  std::int32_t left, right, product;
};

/// Byte-level byte-pair encoding: a piece starts as the tokens of its bytes; the neighbouring pair of lowest rank, the
/// leftmost of equals, is merged until no pair has a rank. The tokens' bytes, joined, are the piece.
class Bpe {
 public:
  /// tokens  bytes of each id; empty: the id is none of the vocabulary. Not empty: all different, and each of the 256
  ///         bytes is among them.
  /// merges  ids in [0, tokens.size()); no pair twice; the bytes of product are those of left, then right.
  Bpe(std::vector<std::string> tokens, std::span<const Merge> merges);

  /// Working memory that calls may share, one thread at a time.
  class Scratch {
    friend class Bpe;
    struct Symbol {
      std::int32_t id;
      std::int32_t product;  // of the merge with the next one
      std::uint32_t rank;    // of the same; kNoRank: there is none, or the symbol has been merged into the one before
      std::size_t previous, next;
    };
    struct Candidate {
      std::uint32_t rank;
      std::size_t at;
      bool operator>(const Candidate& o) const { return rank != o.rank ? rank > o.rank : at > o.at; }
    };
    std::vector<Symbol> symbols_;
    std::vector<Candidate> heap_;
  };

  /// Appends the ids of a piece. O(n log n) in its bytes.
  void append_ids(std::string_view piece, Scratch& scratch, std::vector<std::int32_t>& ids) const;

  /// Bytes of an id in [0, tokens.size()).
  const std::string& bytes(std::int32_t id) const { return tokens_[static_cast<std::size_t>(id)]; }
  /// The id with these bytes; -1: none.
  std::int32_t find(std::string_view bytes) const;

 private:
  static constexpr std::uint32_t kNoRank = ~std::uint32_t{0};
  struct Pair {
    std::uint64_t key;  // left, right
    std::uint32_t rank;
    std::int32_t product;
  };
  struct Word {
    std::uint32_t hash;
    std::int32_t id;  // -1: free
  };

  const Pair& pair(std::int32_t left, std::int32_t right) const;
  void insert_word(std::int32_t id);
  /// Appends by merging a linked list of symbols from a heap of pairs.
  void merge(std::string_view piece, Scratch& scratch, std::vector<std::int32_t>& ids) const;

  std::vector<std::string> tokens_;
  std::vector<Pair> pairs_;  // open addressing, a power of two
  std::vector<Word> words_;  // same
  std::vector<bool> whole_;  // by id: its bytes as a piece are that one token
  std::int32_t byte_ids_[256];
  std::size_t longest_ = 0;
};

}  // namespace plumb

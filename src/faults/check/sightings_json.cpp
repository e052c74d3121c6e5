#include <nlohmann/json.hpp>

#include "faults/check/measure.h"

namespace plumb::faults {
namespace {

using nlohmann::json;

json answers_json(const std::vector<Answer>& answers) {
  json array = json::array();
  for (const Answer& answer : answers) array.push_back({{"right", answer.right}, {"logprobs", answer.logprobs}});
  return array;
}

std::vector<Answer> answers_of(const json& array) {
  std::vector<Answer> answers;
  for (const json& entry : array)
    answers.push_back({entry.at("right").get<bool>(), entry.at("logprobs").get<std::vector<float>>()});
  return answers;
}

json pairs_json(const Pairs& pairs) { return {pairs.differing, pairs.of}; }
Pairs pairs_of(const json& array) { return {array.at(0).get<int>(), array.at(1).get<int>()}; }

}  // namespace

json to_json(const Sightings& s) {
  json trace = json::array();
  for (const PortDigest& port : s.trace) trace.push_back({port.site, port.digest});
  return {{"short", answers_json(s.near)},
          {"boundary", answers_json(s.boundary)},
          {"needle", answers_json(s.needle)},
          {"turns", answers_json(s.turns)},
          {"hits_answered", answers_json(s.hits_answered)},
          {"crowd_answered", answers_json(s.crowd_answered)},
          {"exacting", answers_json(s.exacting)},
          {"hit", pairs_json(s.hit)},
          {"crowd", pairs_json(s.crowd)},
          {"decode", pairs_json(s.decode)},
          {"hit_tokens", s.hit_tokens},
          {"repeats", s.repeats},
          {"replies", s.replies},
          {"scores", s.scores},
          {"hits", s.hits},
          {"decoded", s.decoded},
          {"likeliest", s.likeliest},
          {"trace", trace}};
}

Sightings sightings_from_json(const json& j) {
  Sightings s;
  s.near = answers_of(j.at("short"));
  s.boundary = answers_of(j.at("boundary"));
  s.needle = answers_of(j.at("needle"));
  s.turns = answers_of(j.at("turns"));
  s.hits_answered = answers_of(j.at("hits_answered"));
  s.crowd_answered = answers_of(j.at("crowd_answered"));
  s.exacting = answers_of(j.at("exacting"));
  s.hit = pairs_of(j.at("hit"));
  s.crowd = pairs_of(j.at("crowd"));
  s.decode = pairs_of(j.at("decode"));
  j.at("hit_tokens").get_to(s.hit_tokens);
  j.at("repeats").get_to(s.repeats);
  j.at("replies").get_to(s.replies);
  j.at("scores").get_to(s.scores);
  j.at("hits").get_to(s.hits);
  j.at("decoded").get_to(s.decoded);
  j.at("likeliest").get_to(s.likeliest);
  for (const json& port : j.at("trace"))
    s.trace.push_back({port.at(0).get<std::string>(), port.at(1).get<std::uint64_t>()});
  return s;
}

}  // namespace plumb::faults

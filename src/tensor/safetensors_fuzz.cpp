#include "base/check.h"
#include "tensor/safetensors.h"

// Any bytes give a message or a file whose tensors lie inside those bytes and have the size of their shape.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::span<const std::byte> bytes(reinterpret_cast<const std::byte*>(data), size);
  const auto file = plumb::SafetensorsFile::parse(bytes, "fuzz");
  if (!file) {
    CHECK(!file.error().message.empty());
    return 0;
  }
  std::size_t total = 0;
  for (const plumb::StoredTensor& tensor : file->tensors()) {
    CHECK(file->find(tensor.name) == &tensor);
    CHECK(tensor.bytes.empty() || (tensor.bytes.data() >= bytes.data() &&
                                   tensor.bytes.data() + tensor.bytes.size() <= bytes.data() + bytes.size()));
    total += tensor.bytes.size();
  }
  CHECK(total + 8 <= size);
  return 0;
}

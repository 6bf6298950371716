#include "io/byte_source.h"

#include <mutex>
#include <utility>

#include "base/error.h"
#include "io/cold_file.h"
#include "io/mapping.h"

namespace fastload {
namespace {

void read_from(ColdFile& file, std::span<RangeRequest> ranges, bool keep) noexcept {
  for (RangeRequest& range : ranges) {
    try {
      range.bytes = file.read(range.offset, range.length, range.memory, keep);
    } catch (const std::exception&) {
      range.error = std::current_exception();
    }
  }
}

// Read by system calls only.
class UnmappedFile final : public ByteSource {
 public:
  UnmappedFile(File file, const std::string& path)
      : ByteSource(path, file.size()), file_(std::move(file), path) {}

  using ByteSource::read;
  void read(std::span<RangeRequest> ranges, bool keep) noexcept override {
    read_from(file_, ranges, keep);
  }
  [[nodiscard]] bool is_changed() const noexcept override { return file_.was_reopened(); }
  [[nodiscard]] std::unique_ptr<ByteSource> open_again() const override {
    return std::make_unique<UnmappedFile>(File(name()), name());
  }

 private:
  ColdFile file_;
};

// Its descriptor for read() is opened when that is first needed.
class MappedFile final : public ByteSource {
 public:
  MappedFile(Mapping mapping, const std::string& path, bool in_memory)
      : ByteSource(path, mapping.bytes().size()),
        mapping_(std::move(mapping)),
        in_memory_(in_memory) {}

  using ByteSource::read;
  void read(std::span<RangeRequest> ranges, bool keep) noexcept override {
    if (ColdFile* const file = cold(); file != nullptr) return read_from(*file, ranges, keep);
    for (RangeRequest& range : ranges) range.error = cannot_open();
  }
  [[nodiscard]] bool can_read() noexcept override { return cold() != nullptr; }
  [[nodiscard]] bool is_changed() const noexcept override {
    const ColdFile* const file = cold_.load(std::memory_order_acquire);
    return (file != nullptr && file->was_reopened()) || mapping_.is_damaged();
  }
  [[nodiscard]] std::unique_ptr<ByteSource> open_again() const override {
    return std::make_unique<UnmappedFile>(File(name()), name());
  }

  [[nodiscard]] Bytes mapping() const noexcept override { return mapping_.bytes(); }
  [[nodiscard]] bool is_resident(uint64_t offset, size_t length) override;
  void expect_scattered() noexcept override {
    std::call_once(scattered_, [this] { mapping_.advise_random(); });
  }
  void will_need(uint64_t offset, size_t length) noexcept override {
    mapping_.will_need(offset, length);
  }
  [[nodiscard]] bool is_whole() noexcept override;

 private:
  ColdFile* cold() noexcept;
  void open_cold();
  [[nodiscard]] std::exception_ptr cannot_open() const noexcept {
    return std::make_exception_ptr(Error(ErrorKind::kIo, "cannot open " + name() + " again"));
  }

  const Mapping mapping_;
  const bool in_memory_;  // the file system is
  std::once_flag scattered_, opened_;
  std::unique_ptr<ColdFile> file_;
  std::atomic<ColdFile*> cold_{nullptr};  // the same, once it is open
};

void MappedFile::open_cold() {
  auto file = std::make_unique<ColdFile>(name());
  if (file->file().size() != size()) return;  // another file by now
  file_ = std::move(file);
  cold_.store(file_.get(), std::memory_order_release);
}

// nullptr: it cannot be opened, which is tried again the next time.
ColdFile* MappedFile::cold() noexcept try {
  std::call_once(opened_, [this] { open_cold(); });
  return cold_.load(std::memory_order_acquire);
} catch (const std::exception&) {
  return nullptr;
}

bool MappedFile::is_resident(uint64_t offset, size_t length) {
  if (in_memory_) return true;
  // A page fault that comes before the caller's read shall not bring megabytes of neighbours, which
  // would look as if the set were in memory.
  expect_scattered();
  if (mapping_.tells_residency()) return mapping_.is_resident(offset, length);
  const ColdFile* const file = cold();
  if (file == nullptr) return true;  // too many open files, say: the mapping needs none
  // The outer pages may be there because of the neighbours, so the middle is looked at first.
  for (const uint64_t at : {uint64_t{length / 2}, uint64_t{length} - 1, uint64_t{0}}) {
    if (!file->is_resident(offset + at).value_or(true)) return false;
  }
  return true;
}

bool MappedFile::is_whole() noexcept try {
  const ColdFile* const file = cold();
  return file != nullptr && file->file().size() == size();
} catch (const Error&) {
  return false;
}

}  // namespace

const uint8_t* ByteSource::read(uint64_t offset, size_t length, uint8_t* memory, bool keep) {
  RangeRequest range{offset, length, memory, nullptr, nullptr};
  read({&range, 1}, keep);
  if (range.error != nullptr) std::rethrow_exception(range.error);
  return range.bytes;
}

size_t ByteSource::room(uint64_t offset, size_t length) {
  const uint64_t begin = offset / kAlignment * kAlignment;
  const uint64_t end = (offset + length + kAlignment - 1) / kAlignment * kAlignment;
  return static_cast<size_t>(end - begin);
}

std::unique_ptr<ByteSource> open_unmapped(const std::string& path) {
  return std::make_unique<UnmappedFile>(File(path), path);
}

std::unique_ptr<ByteSource> open_file(const std::string& path) {
  File file(path);
  if (file.is_remote()) return std::make_unique<UnmappedFile>(std::move(file), path);
  return std::make_unique<MappedFile>(Mapping(path), path, file.is_in_memory());
}

}  // namespace fastload

// The folder a checkpoint is downloaded into: where everything lies, and what is remembered about it.
//
//   D/<path>                                             the checkpoint's own files
//   D/<path>.partial                                     one that is arriving
//   D/.cache/huggingface/.gitignore                      "*"
//   D/.cache/huggingface/download/<path>.metadata        commit, etag, time: what makes `hf` accept D/<path>
//   D/.cache/waste-download/journal/<path>.journal       which blocks are there; kept, to repair damage by
//   block D/.cache/waste-download/record.json                  repository, commit, and every file's size and
//   digest D/.waste-download.lock                               while a process is at work
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "container/core/file.h"
#include "download/listing.h"

namespace waste::download {

/// What was asked for, and what each file must hash to: enough to verify the folder without a network.
struct Record {
  std::string repository;
  std::string revision;  // as it was named: "main"
  std::string commit;
  std::vector<Entry> files;
};

/// The three lines that `hf` keeps beside each file.
struct Metadata {
  std::string commit;
  ContentId id;
  double time = 0;  // unix seconds, of a moment after the file got its name
};

/// Reads the three lines; nullopt when they are damaged or the etag is no digest.
std::optional<Metadata> parse_metadata(std::string_view text);

class LocalFolder {
 public:
  explicit LocalFolder(fs::path root) : root_(std::move(root)) {}

  const fs::path& root() const { return root_; }
  static constexpr std::string_view kLockName = ".waste-download.lock";

  fs::path file(const std::string& path) const { return root_ / path; }
  fs::path journal(const std::string& path) const;
  fs::path metadata(const std::string& path) const;

  /// Creates the folder and its state folders. Error(Machine).
  void prepare() const;
  /// Creates the folders that the file, its journal and its metadata go into.
  void prepare_for(const std::string& path) const;

  /// Whether the file is there, has this size, and `hf` would take it for this content without asking: its
  /// metadata names the digest, and it has not been modified since.
  bool is_accepted(const Entry& entry) const;
  /// Bytes of the `.partial` that its journal records; 0 when either is not there.
  std::uint64_t arrived(const Entry& entry) const;
  std::optional<Metadata> read_metadata(const std::string& path) const;
  /// Writes the metadata as of now. The file must have its final name already.
  void write_metadata(const Entry& entry, const std::string& commit) const;
  void forget_metadata(const std::string& path) const;

  /// Gives the complete, verified, synced `.partial` its name, and writes the metadata.
  void publish(const Entry& entry, const std::string& commit) const;

  /// The record, or nullopt when there is none. A damaged one is Error(Data).
  std::optional<Record> read_record() const;
  void write_record(const Record& record) const;
  /// What `hf` left in a folder that this program has not written: files with their digests. Empty when
  /// nothing.
  Record record_from_metadata() const;

 private:
  fs::path root_;
};

}  // namespace waste::download

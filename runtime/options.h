// Options that several subcommands of waste-run share, and how their values are read.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/cli.h"
#include "runtime/engine.h"
#include "runtime/sampler.h"
#include "runtime/tokenizer.h"

namespace waste::runtime {

namespace po = cli::po;

/// The value of a string option or positional; nullopt when it was not given.
std::optional<std::string> text_option(const po::variables_map& vm, const std::string& name);
bool flag(const po::variables_map& vm, const std::string& name);
/// A whole number in [low, high]; `fallback` when the option was not given. Error(Usage) otherwise.
std::uint64_t number_option(const po::variables_map& vm, const std::string& name, std::uint64_t low,
                            std::uint64_t high, std::uint64_t fallback);

/// --ctx, --budget, --threads, --kv, --verify, --learn.
void add_engine_options(po::options_description& options);
/// MODEL and the above. Ctrl-C is asked for between tokens.
EngineOptions engine_options(const po::variables_map& vm);

/// --temperature, --top-k, --top-p, --min-p, --seed.
void add_sampling_options(po::options_description& options);
SamplingOptions sampling_options(const po::variables_map& vm);

/// Everything on standard input.
std::string read_standard_input();

/// What PROMPT, --file or --ids asks for; `raw` is --raw. Giving none is nullopt, giving two Error(Usage).
std::optional<std::vector<std::int32_t>> prompt_ids(const po::variables_map& vm, const Tokenizer& tokenizer,
                                                    bool raw);
/// Error(Usage) unless `count` ids fit a context of `context`.
void check_prompt_fits(std::size_t count, std::uint32_t context);

/// Error(Machine) unless files can be made in `path`'s folder: better known before hours of work than after.
void check_folder(const fs::path& path);

/// Writes to standard output at once. A failure is Error(Machine).
void show(std::string_view text);

}  // namespace waste::runtime

#include <filesystem>
#include <string>
#include <vector>

#include "cli/cli.h"
#include "container/core/text.h"
#include "download/download.h"
#include "download/paths.h"

namespace waste::download {
namespace {

namespace po = boost::program_options;
using Strings = std::vector<std::string>;

constexpr const char* kDownloadHelp =
    R"(Examples:
  waste-download moonshotai/Kimi-K3 --to kimi-k3
  waste-download moonshotai/Kimi-K3 --to kimi-k3 --layers 0-3 --limit-rate 20M
  waste-download org/model --to model --include '*.json' --include '*.safetensors'
  HF_TOKEN=... waste-download org/private-model --to model

Run the same command again after any interruption: only what is missing is requested. Every file is proved against
the digest that the Hub lists before it gets its name. The environment of the Hugging Face tools counts: HF_ENDPOINT,
HF_TOKEN, HF_TOKEN_PATH, HF_HOME, HF_HUB_CACHE, HF_HUB_OFFLINE, HF_HUB_DOWNLOAD_TIMEOUT, https_proxy, SSL_CERT_FILE.
)";

constexpr const char* kCheckHelp =
    R"(Examples:
  waste-download check kimi-k3
  waste-download check --fix kimi-k3

Needs no network: the digests were recorded when the folder was downloaded. With --fix, damaged files are repaired
block by block where the journal knows the blocks, and fetched as a whole otherwise.
)";

constexpr const char* kNotes =
    "Exit codes: 0 everything is there and proved; 1 wrong content; 2 wrong command; 3 the disk or machine "
    "refused;\n"
    "4 the network or server refused; 5 interrupted, run again to continue.\n";

void add_transfer_options(po::options_description& options) {
  options.add_options()                                                                                  //
      ("files", po::value<std::string>()->value_name("N"), "files at once (default 4)")                  //
      ("connections", po::value<std::string>()->value_name("N"), "connections a file (default 4)")       //
      ("limit-rate", po::value<std::string>()->value_name("RATE"), "bytes a second, all together: 20M")  //
      ("stall-timeout", po::value<std::string>()->value_name("S"),
       "cut a connection below 1 KiB/s for that long (default 30)")  //
      ("retries", po::value<std::string>()->value_name("N"),
       "failures in a row, without a byte between them, to survive (default 12)")                      //
      ("endpoint", po::value<std::string>()->value_name("URL"), "the Hub, or a mirror of it")          //
      ("token-file", po::value<std::string>()->value_name("FILE"), "read the access token from FILE")  //
      ("json", "one JSON event a line on standard output")                                             //
      ("quiet,q", "no plan, no progress");
}

std::string text(const po::variables_map& vm, const char* name) {
  return vm.count(name) != 0 ? vm[name].as<std::string>() : std::string();
}

std::uint64_t number(const po::variables_map& vm, const char* name, std::uint64_t otherwise,
                     std::uint64_t low, std::uint64_t high) {
  if (vm.count(name) == 0) return otherwise;
  return parse_integer(vm[name].as<std::string>(), std::string("--") + name, low, high);
}

Settings settings_from(const po::variables_map& vm) {
  return read_settings(process_environment(), text(vm, "endpoint"), text(vm, "token-file"));
}

DownloadOptions transfer_options(const po::variables_map& vm, const Settings& settings) {
  DownloadOptions options;
  options.fetch.files = static_cast<unsigned>(number(vm, "files", 4, 1, 32));
  options.fetch.connections = static_cast<unsigned>(number(vm, "connections", 4, 1, 32));
  if (options.fetch.files * options.fetch.connections > kMostConnections) {
    fail(ErrorKind::Usage, "--files times --connections is {}, more than {}",
         options.fetch.files * options.fetch.connections, kMostConnections);
  }
  options.fetch.limits.attempts =
      static_cast<unsigned>(number(vm, "retries", options.fetch.limits.attempts, 0, 1000));
  options.stall_timeout = static_cast<double>(
      number(vm, "stall-timeout", static_cast<std::uint64_t>(settings.stall_timeout), 1, 86400));
  if (vm.count("limit-rate") != 0) {
    options.limit_rate = parse_size(vm["limit-rate"].as<std::string>(), "--limit-rate");
    if (options.limit_rate < 1024) fail(ErrorKind::Usage, "--limit-rate: less than 1 KiB a second");
  }
  return options;
}

int run_download(const po::variables_map& vm) {
  const Settings settings = settings_from(vm);
  DownloadOptions options = transfer_options(vm, settings);
  options.repository = vm["REPO"].as<std::string>();
  if (!is_repository_name(options.repository)) {
    fail(ErrorKind::Usage, "\"{}\" is not a repository name like moonshotai/Kimi-K3",
         printable(options.repository));
  }
  if (vm.count("to") == 0) fail(ErrorKind::Usage, "--to DIR is missing; see --help");
  options.folder = vm["to"].as<std::string>();
  if (vm.count("revision") != 0) options.revision = vm["revision"].as<std::string>();
  if (options.revision.empty()) fail(ErrorKind::Usage, "--revision is empty");
  if (vm.count("include") != 0) options.include = vm["include"].as<Strings>();
  if (vm.count("exclude") != 0) options.exclude = vm["exclude"].as<Strings>();
  if (vm.count("layers") != 0) options.layers = parse_layers(vm["layers"].as<std::string>());
  if (vm.count("from-cache") != 0 && vm.count("no-cache") != 0) {
    fail(ErrorKind::Usage, "--from-cache and --no-cache contradict each other");
  }
  options.from_cache = vm.count("no-cache") == 0;
  options.dry_run = vm.count("dry-run") != 0;
  Report report(vm.count("json") != 0, vm.count("quiet") != 0);
  cli::catch_interrupts();
  download(options, settings, report);
  return 0;
}

int run_check(const po::variables_map& vm) {
  const Settings settings = settings_from(vm);
  DownloadOptions options = transfer_options(vm, settings);
  options.folder = vm["DIR"].as<std::string>();
  Report report(vm.count("json") != 0, vm.count("quiet") != 0);
  cli::catch_interrupts();
  check(options, settings, vm.count("fix") != 0, report);
  return 0;
}

cli::Command download_command() {
  cli::Command command;
  command.usage = "REPO --to DIR [options]";
  command.summary = "download a checkpoint from the Hugging Face Hub, resumably, and prove it";
  command.help = kDownloadHelp;
  command.positionals = {{"REPO"}};
  command.options.add_options()                                                                            //
      ("to", po::value<std::string>()->value_name("DIR"), "the folder to fill")                            //
      ("revision", po::value<std::string>()->value_name("REV"), "branch, tag or commit (default main)")    //
      ("include", po::value<Strings>()->value_name("PATTERN"), "only files that match; * also matches /")  //
      ("exclude", po::value<Strings>()->value_name("PATTERN"), "no files that match")                      //
      ("layers", po::value<std::string>()->value_name("0-3"),
       "only shards with these layers, and the trunk")                               //
      ("from-cache", "take files from the shared Hugging Face cache (the default)")  //
      ("no-cache", "fetch everything from the network")                              //
      ("dry-run", "show the plan and stop");
  add_transfer_options(command.options);
  command.run = run_download;
  return command;
}

cli::Command check_command() {
  cli::Command command;
  command.name = "check";
  command.usage = "DIR [options]";
  command.summary = "hash every file again and compare with the recorded commit";
  command.help = kCheckHelp;
  command.positionals = {{"DIR"}};
  command.options.add_options()("fix", "fetch what is missing or damaged");
  add_transfer_options(command.options);
  command.run = run_check;
  return command;
}

}  // namespace
}  // namespace waste::download

int main(int argc, char** argv) {
  const waste::cli::Program program{"waste-download",
                                    "fetch a checkpoint from the Hugging Face Hub",
                                    waste::download::kNotes,
                                    {waste::download::download_command(), waste::download::check_command()}};
  return waste::cli::run(program, argc, argv);
}

// The official JavaScript client, for npm_client_test.py: `snapshot HUB REPO CACHE` downloads a repository into a
// cache and prints the snapshot's folder; `scan CACHE` prints what the client finds in one.
import { createRequire } from "node:module";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

const require = createRequire(join(process.env.WASTE_NPM_DIR, "package.json"));
const hub = await import(pathToFileURL(require.resolve("@huggingface/hub")).href);
const [command, ...rest] = process.argv.slice(2);
console.debug = () => {};

if (command === "snapshot") {
  const [hubUrl, repo, cacheDir] = rest;
  console.log(await hub.snapshotDownload({ repo, hubUrl, cacheDir }));
} else if (command === "scan") {
  const found = await hub.scanCacheDir(rest[0]);
  console.log(JSON.stringify({
    warnings: found.warnings.map(String),
    repos: found.repos.map((repo) => ({
      id: repo.id,
      size: repo.size,
      revisions: repo.revisions.map((revision) => ({
        commit: revision.commitOid,
        refs: revision.refs,
        files: revision.files.map((file) => [file.path, file.blob.path, file.blob.size]).sort(),
      })),
    })),
  }));
} else {
  throw new Error("unknown command " + command);
}

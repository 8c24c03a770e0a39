// Bundles the widgets into divebook/widgets/static and reports their sizes: one entry for each anywidget.

import { readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";
import { build } from "esbuild";

const here = dirname(fileURLToPath(import.meta.url));
const outdir = join(here, "..", "divebook", "widgets", "static");
const LIMIT = 100_000; // bytes that travel with each widget, style included

const entries = { live: "src/live/index.ts", replay: "src/replay/index.ts" };

const { metafile } = await build({
  absWorkingDir: here,
  entryPoints: entries,
  outdir,
  bundle: true,
  minify: true,
  format: "esm",
  target: "es2022",
  charset: "utf8",
  legalComments: "none",
  metafile: true,
});

const kB = (bytes) => `${(bytes / 1000).toFixed(1)} kB`;
for (const name of Object.keys(entries)) {
  const files = Object.keys(metafile.outputs).filter((path) => path.includes(`/${name}.`));
  const contents = files.map((path) => readFileSync(join(here, path)));
  const total = contents.reduce((sum, content) => sum + content.length, 0);
  const zipped = contents.reduce((sum, content) => sum + gzipSync(content).length, 0);
  console.log(`${name}: ${kB(total)} in ${files.length} files (${kB(zipped)} gzipped), at most ${kB(LIMIT)}`);
  if (total > LIMIT) {
    console.error(`${name} is too large: it travels with every widget`);
    process.exit(1);
  }
}

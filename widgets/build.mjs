// Bundles the front end and reports sizes: the widgets into divebook/widgets/static, one entry for each anywidget, the
// JupyterLab extension, which is one script with its style inside, into labextension, and into both the parts of views
// that are loaded when a run first needs them.

import { copyFileSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";
import { build, transform } from "esbuild";

const here = dirname(fileURLToPath(import.meta.url));
const python = join(here, "..", "divebook");
const folder = join(here, "labextension");
// Bytes of each bundle, style included. Widgets (live, inbox, offer, runs, replay) travel with each of their views, the
// extension is loaded with each page, and parts are loaded when a run first needs them. `viewer` is packed inside of a page.
const BUDGETS = JSON.parse(readFileSync(join(here, "budgets.json"), "utf8"));

const SETTINGS = {
  title: "divebook",
  description: "How runs of divebook tell that they ask something",
  properties: {
    desktopNotifications: {
      type: "boolean",
      title: "Desktop notifications",
      description: "Whether a new question shows a notification of the desktop while this window does not have the focus",
      default: false,
    },
  },
  additionalProperties: false,
  type: "object",
};

const common = { absWorkingDir: here, bundle: true, minify: true, target: "es2022", charset: "utf8", legalComments: "none" };

async function widgets() {
  const entryPoints = { live: "src/live/index.ts", inbox: "src/inbox/index.ts", offer: "src/offer/index.ts", runs: "src/runs/index.ts", replay: "src/replay/index.ts" };
  const { metafile } = await build({ ...common, entryPoints, outdir: join(python, "widgets", "static"), format: "esm", metafile: true });
  for (const name of Object.keys(entryPoints)) {
    const files = Object.keys(metafile.outputs).filter((path) => path.includes(`/${name}.`));
    report(name, files.map((path) => join(here, path)));
  }
}

async function parts() {
  const style = { name: "style", setup: ({ onLoad }) => onLoad({ filter: /\.css$/ }, minified) };
  for (const name of ["failure", "files", "graph", "spread", "stepping", "timeline", "turn", "variables"]) {
    const made = join(python, "widgets", "static", `${name}.js`);
    await build({ ...common, entryPoints: [`src/${name}/index.ts`], outfile: made, format: "esm", plugins: [style] });
    copyFileSync(made, join(folder, "static", `${name}.js`));
    report(name, [made]);
  }
}

async function minified({ path }) {
  const { code } = await transform(readFileSync(path, "utf8"), { loader: "css", minify: true });
  return { contents: code, loader: "text" };
}

async function labextension() {
  const entry = join(folder, "static", "remoteEntry.js");
  await withStyle("src/lab/index.ts", entry, "iife");
  const version = /__version__ = "(.+)"/.exec(readFileSync(join(python, "_version.py"), "utf8"))[1];
  write(join(folder, "package.json"), {
    name: "divebook",
    version,
    description: "Shows runs of divebook that a notebook holds, tells of their questions, and colours %%dive cells.",
    license: "Apache-2.0",
    jupyterlab: {
      extension: true,
      mimeExtension: true,
      schemaDir: "schema",
      _build: { load: "static/remoteEntry.js", extension: "./extension", mimeExtension: "./mimeExtension" },
    },
  });
  write(join(folder, "schemas", "divebook", "questions.json"), SETTINGS);
  write(join(folder, "install.json"), { packageManager: "python", packageName: "divebook", uninstallInstructions: "pip uninstall divebook" });
  report("labextension", [entry]);
  for (const name of ["panel", "saved"]) {
    const made = join(folder, "static", `${name}.js`);
    await withStyle(`src/${name}/index.ts`, made, "esm");
    report(name, [made]);
  }
}

/** Bundles a script in which `inline:style` are its style sheets as one text. */
async function withStyle(entry, outfile, format) {
  const setup = ({ onResolve, onLoad }) => {
    onResolve({ filter: /^inline:style$/ }, ({ path }) => ({ path, namespace: "inline" }));
    onLoad({ filter: /.*/, namespace: "inline" }, async () => {
      const { outputFiles } = await build({ ...common, entryPoints: [entry], outdir: "unwritten", write: false, external: ["inline:style"], format: "esm" });
      return { contents: outputFiles.find(({ path }) => path.endsWith(".css")).text, loader: "text" };
    });
  };
  await build({ ...common, entryPoints: [entry], outfile, format, plugins: [{ name: "inline:style", setup }], loader: { ".css": "empty" } });
}

function write(path, data) {
  mkdirSync(dirname(path), { recursive: true });
  writeFileSync(path, `${JSON.stringify(data, null, 2)}\n`);
}

function report(name, files) {
  const limit = BUDGETS[name];
  if (limit === undefined) throw new Error(`${name} has no budget: add one to budgets.json`);
  const kB = (bytes) => `${(bytes / 1000).toFixed(1)} kB`;
  const contents = files.map((path) => readFileSync(path));
  const total = contents.reduce((sum, content) => sum + content.length, 0);
  const zipped = contents.reduce((sum, content) => sum + gzipSync(content).length, 0);
  console.log(`${name}: ${kB(total)} in ${files.length} files (${kB(zipped)} gzipped), at most ${kB(limit)}`);
  if (total > limit) {
    console.error(`${name} is above its budget: load a part of it on demand, or raise the budget in budgets.json`);
    process.exit(1);
  }
}

/** What a file holds that shows a run by itself: the first script, which unpacks the second. */
async function page() {
  for (const [name, entry] of [["page", "src/page/index.ts"], ["viewer", "src/page/viewer.ts"]]) {
    const made = join(python, "widgets", "static", `${name}.js`);
    await withStyle(entry, made, "iife");
    report(name, [made]);
  }
}

await widgets();
await labextension();
await parts();
await page();

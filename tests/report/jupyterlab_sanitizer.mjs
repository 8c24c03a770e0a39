// Sanitize HTML as JupyterLab does with outputs of untrusted notebooks, by its own code: `sanitize-html` and the class
// of `@jupyterlab/apputils` that configures it, both cut out of JupyterLab's built files.
//
// node jupyterlab_sanitizer.mjs FOLDER < pages.json, where FOLDER is `share/jupyter/lab/static`, and `pages.json` a list
// of texts. Prints the list of sanitized texts.

import { readFileSync, readdirSync } from "node:fs";
import { join } from "node:path";

const folder = process.argv[2];
const sources = readdirSync(folder)
  .filter((name) => name.endsWith(".js"))
  .map((name) => readFileSync(join(folder, name), "utf8"));

/** Return the modules of a built file, as functions by id. */
function modulesOf(source) {
  const chunks = [];
  // The file pushes its chunk to a global array, whose name differs between versions.
  new Function("self", source)(new Proxy({}, { get: () => chunks, set: () => true }));
  return chunks[0][1];
}

const modules = modulesOf(sources.find((source) => source.includes("defaults={allowedTags")));
const loaded = new Map();

/** Load a module, as the bundler's own function does. */
function load(id) {
  // The only module of another file is a copy of Node's `process`.
  if (!(id in modules)) return process;
  if (!loaded.has(id)) {
    const module = { exports: {} };
    loaded.set(id, module);
    modules[id].call(module.exports, module, module.exports, load);
  }
  return loaded.get(id).exports;
}
load.n = (module) => () => (module?.__esModule ? module.default : module);
load.d = (exports, getters) => {
  for (const name of Object.keys(getters)) Object.defineProperty(exports, name, { enumerable: true, get: getters[name] });
};
load.o = (object, name) => Object.hasOwn(object, name);
load.r = (exports) => Object.defineProperty(exports, "__esModule", { value: true });

const id = Object.keys(modules).find((each) => modules[each].toString().includes("defaults={allowedTags"));
const sanitizeHtml = load(id);

/** Return the class that configures `sanitize-html`, with the expressions for styles before it. */
function sanitizerOf(source) {
  const [, , imported, styles] = /(\w+)=\w+\(\d+\),(\w+)=\w+\.n\(\1\);class (\w+)\{static reg\(/.exec(source);
  const begin = source.indexOf(`class ${styles}{static reg(`);
  const name = /class (\w+)\{constructor\(\)\{this\._autolink=/.exec(source.slice(begin))[1];
  // The class ends at the first brace with which the text can be parsed.
  for (let end = source.indexOf("setAutolink", begin); ; ) {
    end = source.indexOf("}", end + 1);
    try {
      return new (new Function(imported, `${source.slice(begin, end + 1)}; return ${name}`)(() => sanitizeHtml))();
    } catch (error) {
      if (!(error instanceof SyntaxError)) throw error;
    }
  }
}

const sanitizer = sanitizerOf(sources.find((source) => source.includes("_generateOptions=()=>")));
const pages = JSON.parse(readFileSync(0, "utf8"));
process.stdout.write(JSON.stringify(pages.map((page) => sanitizer.sanitize(page))));

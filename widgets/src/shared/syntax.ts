// Syntax colours for lines of source code: comments, strings, numbers and keywords of common languages.
//
// Each line is coloured by itself, because a difference contains only parts of a file. A string or comment of several
// lines is therefore coloured only where it begins.

/** Part of a line with the kind of its colour; an empty kind for ordinary text. */
export interface Token {
  kind: "" | "comment" | "string" | "number" | "keyword";
  text: string;
}

interface Language {
  comment: string;
  keywords: string;
}

const C_LIKE = "break case catch class const continue default delete do else enum export extends false finally for function if implements import in instanceof interface let new null of private protected public return static super switch this throw true try type typeof undefined var void while async await yield fn impl match mod mut pub self struct trait use where func package defer go range select map chan int string bool float double char long";
const LANGUAGES: readonly (readonly [RegExp, Language])[] = [
  [/\.pyi?$/, { comment: "#.*", keywords: "and as assert async await break case class continue def del elif else except False finally for from global if import in is lambda match None nonlocal not or pass raise return self True try while with yield" }],
  [/\.(c|cc|cpp|cs|go|h|hpp|java|js|jsx|kt|mjs|rs|scala|swift|ts|tsx)$/, { comment: "\\/\\/.*|\\/\\*.*?(?:\\*\\/|$)", keywords: C_LIKE }],
  [/\.(json|ipynb)$/, { comment: "(?!)", keywords: "true false null" }],
  [/\.(toml|ya?ml|cfg|ini|conf)$/, { comment: "#.*", keywords: "true false null yes no on off" }],
  [/(\.(sh|bash|zsh|mk)|Dockerfile|Makefile)$/, { comment: "#.*", keywords: "case do done elif else esac export fi for function if in local return then while" }],
  [/\.sql$/i, { comment: "--.*", keywords: "select from where and or not null insert into values update set delete create table join left right on group by order limit as SELECT FROM WHERE AND OR NOT NULL INSERT INTO VALUES UPDATE SET DELETE CREATE TABLE JOIN LEFT RIGHT ON GROUP BY ORDER LIMIT AS" }],
];
const STRING = "\"(?:[^\"\\\\]|\\\\.)*\"?|'(?:[^'\\\\]|\\\\.)*'?|`(?:[^`\\\\]|\\\\.)*`?";
const MAX_LENGTH = 2_000; // characters; longer lines are not coloured

/** Return a function that splits a line of a file into tokens, or undefined if the language of the file is not known. */
export function syntaxOf(path: string): ((line: string) => Token[]) | undefined {
  const language = LANGUAGES.find(([name]) => name.test(path))?.[1];
  if (language === undefined) return undefined;
  const pattern = new RegExp(`(${language.comment})|(${STRING})|\\b(\\d[\\w.]*)|\\b(${language.keywords.replaceAll(" ", "|")})\\b`, "g");
  return (line) => (line.length > MAX_LENGTH ? [{ kind: "", text: line }] : tokensOf(line, pattern));
}

function tokensOf(line: string, pattern: RegExp): Token[] {
  const tokens: Token[] = [];
  let end = 0;
  for (const match of line.matchAll(pattern)) {
    if (match.index > end) tokens.push({ kind: "", text: line.slice(end, match.index) });
    const kinds = ["comment", "string", "number", "keyword"] as const;
    tokens.push({ kind: kinds.find((_, place) => match[place + 1] !== undefined) ?? "", text: match[0] });
    end = match.index + match[0].length;
  }
  if (end < line.length) tokens.push({ kind: "", text: line.slice(end) });
  return tokens;
}

/** Style sheets are bundled by esbuild; those of parts that are loaded later are texts. */
declare module "*.css" {
  const style: string;
  export default style;
}

/** All style sheets of the bundle as one text; `build.mjs` provides it. */
declare module "inline:style" {
  const style: string;
  export default style;
}

/** Style sheets are bundled by esbuild. */
declare module "*.css";

/** All style sheets of the bundle as one text; `build.mjs` provides it. */
declare module "inline:style" {
  const style: string;
  export default style;
}

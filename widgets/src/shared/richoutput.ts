// Results of steps that notebooks display as an image or as HTML, such as figures.

import { HTML_TYPE, IMAGE_TYPE } from "../constants";
import type { VariableView } from "../protocol";
import { h } from "./dom";

const IMAGE_ADDRESS = /^data:image\/(?:png|jpeg|svg\+xml);base64,[A-Za-z0-9+/=]+$/;
/** Rules for the page inside the frame: it loads nothing and runs nothing, but may have styles and images of its own. */
const POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; font-src data:";

/** Return whether a variable is an image or HTML, whose text is the image's address or the source. */
export function isRich({ type, text }: VariableView): boolean {
  return (type === IMAGE_TYPE || type === HTML_TYPE) && text !== "";
}

/**
 * Show an image, or HTML in a frame. HTML comes from a step, perhaps from a web page that it has read, so it is hostile: the
 * empty sandbox forbids scripts, forms and links to the page around it, and the policy forbids requests.
 */
export function richOutput({ name, type, text }: VariableView): HTMLElement {
  if (type === IMAGE_TYPE) {
    const isImage = IMAGE_ADDRESS.test(text);
    return isImage ? h("img", { class: "db-image", src: text, alt: `Image ${name}` }) : h("p", { class: "soft" }, "This image cannot be shown.");
  }
  const srcdoc = `<!doctype html><meta http-equiv="Content-Security-Policy" content="${POLICY}"><meta name="color-scheme" content="light">${text}`;
  const frame = h("iframe", { class: "db-frame", sandbox: "", referrerpolicy: "no-referrer", title: `HTML ${name}` });
  frame.srcdoc = srcdoc;
  return frame;
}

// Decompression of text that Python compressed (zlib, base64), with a size limit.

/** Return the text. The promise is rejected if the text is larger than `limit` bytes, before all of it is decompressed. */
export async function unpackText(data: string, limit: number): Promise<string> {
  const bytes = Uint8Array.from(atob(data), (character) => character.charCodeAt(0));
  const reader = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate")).getReader();
  const decoder = new TextDecoder("utf-8", { fatal: true });
  let text = "";
  let size = 0;
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return text + decoder.decode();
    size += value.length;
    if (size > limit) {
      await reader.cancel();
      throw new Error(`it contains more than ${limit / 1e6} MB`);
    }
    text += decoder.decode(value, { stream: true });
  }
}

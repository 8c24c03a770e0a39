// Text that Python packed (zlib, base64), unpacked within a size.

/** Returns the text; rejects with a sentence where it is larger than `most` bytes. */
export async function unpacked(packed: string, most: number): Promise<string> {
  const bytes = Uint8Array.from(atob(packed), (character) => character.charCodeAt(0));
  const reader = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate")).getReader();
  const decoder = new TextDecoder("utf-8", { fatal: true });
  let [whole, size] = ["", 0];
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return whole + decoder.decode();
    size += value.length;
    if (size > most) {
      await reader.cancel();
      throw new Error(`it holds more than ${most / 1e6} MB`);
    }
    whole += decoder.decode(value, { stream: true });
  }
}

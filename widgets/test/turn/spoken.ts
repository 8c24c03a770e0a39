// Parts of conversations for tests.

import type { ConversationPart } from "../../src/protocol";

/** Makes a part of a conversation. */
export function spoken(kind: ConversationPart["kind"], said: string, name = ""): ConversationPart {
  return { kind, text: said, call: name };
}

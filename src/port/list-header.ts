/**
 * Reads a header that is a list (Accept, Accept-Encoding, If-None-Match). Clients send a few elements; a head
 * has room for 15,000 commas. So only the start is read (I14, I18).
 */
const CHARACTERS_MAX = 1_024;
const ELEMENTS_MAX = 32;

export function elementsOf(header = ''): string[] {
  return startOf(header).split(',', ELEMENTS_MAX);
}

/** Up to the last whole element: one that is cut off may mean something else (`br;q=0`, `br;q=0.5`). */
function startOf(header: string): string {
  if (header.length <= CHARACTERS_MAX) return header;
  return header.slice(0, Math.max(0, header.lastIndexOf(',', CHARACTERS_MAX)));
}

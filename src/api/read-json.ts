/**
 * Parses JSON of a client. Its depth is limited, because the validation is recursive, and so is the number of
 * its values and keys, on which the cost of parsing depends (I14). The cost is charged before it is parsed
 * (I18).
 */
import { parseMs } from '../limits/costs.js';
import { jsonShape } from '../limits/rules-json-shape.js';

/** The deepest body of the API has 6 levels. */
const DEPTH_MAX = 64;
/** As for messages of the relay (relay/input/message.ts). */
const KEYS_MAX = 10_000;
const VALUES_MAX = 100_000;

export function readJson(
  bytes: Uint8Array,
  charge: (costMs: number) => void,
): { readonly value: unknown } | { readonly problem: string } {
  const shape = jsonShape(bytes, DEPTH_MAX);
  if (shape.depth > DEPTH_MAX) return { problem: `nested more than ${DEPTH_MAX} levels deep` };
  if (shape.keys > KEYS_MAX) return { problem: `of more than ${KEYS_MAX} keys` };
  if (shape.values > VALUES_MAX) return { problem: `of more than ${VALUES_MAX} values` };
  charge(parseMs(shape));
  try {
    return { value: JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(bytes)) };
  } catch {
    return { problem: 'not JSON' };
  }
}

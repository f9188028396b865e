/**
 * The text of a frame as a message of Nostr: measured before it is parsed, and charged by the cost of
 * parsing (I14, I18).
 */
import { type Refusal, refusal } from '../../events/rules/reply.js';
import { parseMs } from '../../limits/costs.js';
import { jsonShape } from '../../limits/rules-json-shape.js';

/**
 * Messages of Nostr nest four deep; a large REQ has some thousand keys, a large event some ten thousand
 * values. `JSON.parse` took 16 ms for 60,000 levels, 6 ms for 9,000 different keys and 3 ms for 40,000
 * values.
 */
const JSON_DEPTH_MAX = 16;
const JSON_KEYS_MAX = 10_000;
const JSON_VALUES_MAX = 100_000;

export function parseMessage(
  data: Buffer,
  bytesMax: number,
  charge: (costMs: number) => void,
): unknown[] | Refusal {
  if (data.length > bytesMax) return refusal('invalid', `message is larger than ${bytesMax} bytes`);
  const shape = jsonShape(data, JSON_DEPTH_MAX);
  if (shape.depth > JSON_DEPTH_MAX)
    return refusal('invalid', `message is nested deeper than ${JSON_DEPTH_MAX} levels`);
  if (shape.keys > JSON_KEYS_MAX)
    return refusal('invalid', `message has more than ${JSON_KEYS_MAX} keys of objects`);
  if (shape.values > JSON_VALUES_MAX)
    return refusal('invalid', `message has more than ${JSON_VALUES_MAX} values`);
  charge(parseMs(shape));
  let message: unknown;
  try {
    message = JSON.parse(data.toString());
  } catch {
    return refusal('invalid', 'message is not JSON');
  }
  return Array.isArray(message) ? message : refusal('invalid', 'message must be a JSON array');
}

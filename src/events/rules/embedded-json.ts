/**
 * JSON inside the content of an event: a repost, a profile. Parsing deeply nested JSON takes long (16 ms for
 * 60,000 levels), so its depth is measured first, in one pass over the bytes (I18). Pure.
 */
import { jsonShape } from '../../limits/rules-json-shape.js';

/** An event nests three levels deep, a profile with its extensions a few more. */
const DEPTH_MAX = 64;
const encoder = new TextEncoder();

export type Embedded = { readonly json: unknown } | 'too deep' | 'no JSON';

export function parseEmbedded(text: string): Embedded {
  if (jsonShape(encoder.encode(text), DEPTH_MAX).depth > DEPTH_MAX) return 'too deep';
  try {
    return { json: JSON.parse(text) as unknown };
  } catch {
    return 'no JSON';
  }
}

/**
 * The one place that knows the words on the wire: what an outcome says to the client (NIP-01).
 * A refusal is a value, not an exception (I2: a failure never becomes a success).
 */

/** The machine-readable prefixes of NIP-01, NIP-42 and NIP-45. */
export type Prefix =
  | 'duplicate'
  | 'pow'
  | 'blocked'
  | 'rate-limited'
  | 'invalid'
  | 'restricted'
  | 'mute'
  | 'error'
  | 'unsupported'
  | 'auth-required';

export interface Refusal {
  readonly refused: Prefix;
  readonly why: string;
}

export function refusal(refused: Prefix, why: string): Refusal {
  return { refused, why };
}

export function isRefusal(value: unknown): value is Refusal {
  return typeof value === 'object' && value !== null && 'refused' in value;
}

/**
 * The id of a topic: its name becomes `<namespace>:<64 hex>`, the same on every node of a network. Pure.
 * Besides hashes there are `<namespace>:global` and `<namespace>:user:<pubkey>`. The algorithm has a version.
 * test/vectors tests each version exactly, so that apps can compute ids themselves.
 */
import { blake3 } from '@noble/hashes/blake3.js';
import { bytesToHex, hexToBytes, utf8ToBytes } from '@noble/hashes/utils.js';
import { isHex64 } from '../events/rules/event.js';
import { isRefusal, type Refusal, refusal } from '../events/rules/reply.js';
import { longestMarks } from '../events/rules/text.js';

/** Characters of a normalised name. */
export const TOPIC_NAME_LENGTH_MAX = 256;
/** Longer texts are refused before normalising, which can make a text 18 times as long. */
const GIVEN_LENGTH_MAX = 4_096;
/**
 * In a run of combining marks, only a few merge with the letter before them. With more marks than this the
 * normalised name is too long. Normalising takes quadratic time for such a run, so it is refused before.
 */
const MARKS_IN_A_ROW_MAX = TOPIC_NAME_LENGTH_MAX + 16;
const CONTROL = /\p{Cc}/u;

export interface TopicNaming {
  /** Hashed in front of every name, so that networks do not share ids. */
  readonly networkId: string;
  readonly namespace: string;
  readonly version?: TopicVersion;
}

/** Each version computes the part after the namespace, from the network and the normalised name. */
export const TOPIC_VERSIONS = {
  v1: (networkId: string, name: string) => bytesToHex(blake3(utf8ToBytes(networkId + name))),
} as const satisfies Record<string, (networkId: string, name: string) => string>;
export type TopicVersion = keyof typeof TOPIC_VERSIONS;

/** The id of a name. A name that is an id already is used as it is. */
export function topicId(
  name: string,
  { networkId, namespace, version = 'v1' }: TopicNaming,
): string | Refusal {
  const normalised = normaliseName(name);
  if (isRefusal(normalised) || isTopicId(normalised, namespace)) return normalised;
  return `${namespace}:${TOPIC_VERSIONS[version](networkId, normalised)}`;
}

/** Applies NFKC, trims white space, and converts to lower case. */
export function normaliseName(name: string): string | Refusal {
  if (!name.isWellFormed()) return refusal('invalid', 'a topic name must not contain lone surrogates');
  const tooLong = refusal('invalid', `a topic name must have at most ${TOPIC_NAME_LENGTH_MAX} characters`);
  if (name.length > GIVEN_LENGTH_MAX || longestMarks(name) > MARKS_IN_A_ROW_MAX) return tooLong;
  const normalised = name.normalize('NFKC').trim().toLowerCase();
  if (normalised === '') return refusal('invalid', 'a topic name must not be empty');
  if (CONTROL.test(normalised)) return refusal('invalid', 'a topic name must not contain control characters');
  return [...normalised].length > TOPIC_NAME_LENGTH_MAX ? tooLong : normalised;
}

export type TopicIdParts =
  | { readonly type: 'hash'; readonly hex: string }
  | { readonly type: 'global' }
  | { readonly type: 'user'; readonly pubkey: string };

/** The parts of an id of this namespace; undefined when it is not an id. */
export function parseTopicId(value: string, namespace: string): TopicIdParts | undefined {
  if (!value.startsWith(`${namespace}:`)) return undefined;
  const rest = value.slice(namespace.length + 1);
  if (rest === 'global') return { type: 'global' };
  const pubkey = rest.startsWith('user:') ? rest.slice('user:'.length) : undefined;
  if (isHex64(pubkey)) return { type: 'user', pubkey };
  return isHex64(rest) ? { type: 'hash', hex: rest } : undefined;
}

export function isTopicId(value: string, namespace: string): boolean {
  return parseTopicId(value, namespace) !== undefined;
}

/** The topic for a new member's first post. */
export function globalTopic(namespace: string): string {
  return `${namespace}:global`;
}

/** The 32-byte gossip topic under which nodes exchange the events of a topic. */
export function gossipTopic(id: string, namespace: string): Uint8Array {
  const parts = parseTopicId(id, namespace);
  return parts?.type === 'hash' ? hexToBytes(parts.hex) : blake3(utf8ToBytes(id));
}

/**
 * The id of a topic: what people call it becomes `<namespace>:<64 hex>`, the same on every node of a network. Pure.
 * Reserved beside the hashes: `<namespace>:global` and `<namespace>:user:<pubkey>`.
 * How an id is made has a version; test/vectors holds each to its letter, so that apps can make ids by themselves.
 */
import { blake3 } from '@noble/hashes/blake3.js';
import { bytesToHex, hexToBytes, utf8ToBytes } from '@noble/hashes/utils.js';
import { isHex64 } from './event.js';
import { isRefusal, type Refusal, refusal } from './reply.js';

/** Characters of a normalised name. */
export const TOPIC_NAME_LENGTH_MAX = 256;
/** Nothing longer is even normalised, which may make a text 18 times as long. */
const GIVEN_LENGTH_MAX = 4_096;
const CONTROL = /\p{Cc}/u;

export interface TopicNaming {
  /** Stands in front of every name, so that networks do not share ids. */
  readonly networkId: string;
  readonly namespace: string;
  readonly version?: TopicVersion;
}

/** Each makes the part behind the namespace, from the network and the normalised name. */
export const TOPIC_VERSIONS = {
  v1: (networkId: string, name: string) => bytesToHex(blake3(utf8ToBytes(networkId + name))),
} as const satisfies Record<string, (networkId: string, name: string) => string>;
export type TopicVersion = keyof typeof TOPIC_VERSIONS;

/** The id of a name. A name that is an id already is taken as it is. */
export function topicId(
  name: string,
  { networkId, namespace, version = 'v1' }: TopicNaming,
): string | Refusal {
  const normalised = normaliseName(name);
  if (isRefusal(normalised) || isTopicId(normalised, namespace)) return normalised;
  return `${namespace}:${TOPIC_VERSIONS[version](networkId, normalised)}`;
}

/** NFKC, then without white space around it, then in lower case. */
export function normaliseName(name: string): string | Refusal {
  if (!name.isWellFormed()) return refusal('invalid', 'a topic name holds no lone surrogate');
  const tooLong = refusal('invalid', `a topic name has at most ${TOPIC_NAME_LENGTH_MAX} characters`);
  if (name.length > GIVEN_LENGTH_MAX) return tooLong;
  const normalised = name.normalize('NFKC').trim().toLowerCase();
  if (normalised === '') return refusal('invalid', 'a topic name is not empty');
  if (CONTROL.test(normalised)) return refusal('invalid', 'a topic name holds no control characters');
  return [...normalised].length > TOPIC_NAME_LENGTH_MAX ? tooLong : normalised;
}

export type TopicIdParts =
  | { readonly type: 'hash'; readonly hex: string }
  | { readonly type: 'global' }
  | { readonly type: 'user'; readonly pubkey: string };

/** What an id of this namespace is made of; undefined when it is none. */
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

/** Where a newcomer's first post goes. */
export function globalTopic(namespace: string): string {
  return `${namespace}:global`;
}

/** The 32 bytes under which nodes exchange the events of a topic. */
export function gossipTopic(id: string, namespace: string): Uint8Array {
  const parts = parseTopicId(id, namespace);
  return parts?.type === 'hash' ? hexToBytes(parts.hex) : blake3(utf8ToBytes(id));
}

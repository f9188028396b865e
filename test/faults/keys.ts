/** The people of a world, and the events that they sign. Keys follow from the seed. */
import { createHash } from 'node:crypto';
import { finalizeEvent, getPublicKey, type VerifiedEvent } from 'nostr-tools/pure';
import { HELD_WORD, type PlannedEvent, SHARED, SLUGS } from './plan.js';

/** The times of events begin so long before the world. */
const PAST_SECONDS = 3_600;

export interface Person {
  readonly secret: Uint8Array;
  readonly pubkey: string;
}

export function personOf(...words: readonly (string | number)[]): Person {
  const secret = new Uint8Array(
    createHash('sha256')
      .update(`key ${words.join(' ')}`)
      .digest(),
  );
  return { secret, pubkey: getPublicKey(secret) };
}

export const topicIdOf = (topic: number) =>
  `kukuri:${createHash('sha256').update(`topic ${topic}`).digest('hex')}`;

/** The topic that the node and the peer exchange. */
export const SHARED_TOPIC = topicIdOf(-1);

/** Signs planned events, each once, when its id is first needed. */
export class Signer {
  private readonly signed = new Map<number, VerifiedEvent>();
  private readonly base = Math.floor(Date.now() / 1_000) - PAST_SECONDS;
  private readonly people = new Map<number, Person>();

  constructor(
    private readonly seed: number,
    private readonly world: number,
    private readonly events: readonly PlannedEvent[],
  ) {}

  person(author: number): Person {
    const known = this.people.get(author);
    if (known !== undefined) return known;
    const person = personOf(this.seed, this.world, author);
    this.people.set(author, person);
    return person;
  }

  sign(number: number): VerifiedEvent {
    const known = this.signed.get(number);
    if (known !== undefined) return known;
    const planned = this.events[number]!;
    const { kind, createdAt } = planned;
    const draft = {
      kind,
      created_at: this.base + createdAt,
      tags: this.tagsOf(planned),
      content: textOf(planned),
    };
    const { secret } = this.person(planned.author);
    const event = JSON.parse(JSON.stringify(finalizeEvent(draft, secret))) as VerifiedEvent;
    if (planned.isForged) event.sig = event.sig.replace(/^./, (digit) => (digit === '0' ? '1' : '0'));
    this.signed.set(number, event);
    return event;
  }

  addressOf(number: number): string {
    const { kind, author, d = '' } = this.events[number]!;
    return `${kind}:${this.person(author).pubkey}:${d}`;
  }

  private tagsOf({ community, topic, d, expiresIn, deletes }: PlannedEvent): string[][] {
    const now = Math.floor(Date.now() / 1_000);
    return [
      ['t', topic],
      ...(community === SHARED ? [['t', SHARED_TOPIC]] : []),
      ...(d === undefined ? [] : [['d', d]]),
      ...(expiresIn === undefined ? [] : [['expiration', `${now + expiresIn}`]]),
      ...(deletes?.ids ?? []).map((target) => ['e', this.sign(target).id]),
      ...(deletes?.addresses ?? []).map((target) => ['a', this.addressOf(target)]),
    ];
  }
}

/** Says where it belongs, so that it is recognised elsewhere. */
const textOf = ({ community, number, isHeld }: PlannedEvent) =>
  `${SLUGS[community]} ${number} of the harbour${isHeld ? ` ${HELD_WORD}` : ''}`;

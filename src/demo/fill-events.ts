/**
 * Sends the events of the demo through admission and the lane, signed, in the order of the story. What
 * depends on an earlier event waits until that one is stored.
 */
import { setTimeout as delay } from 'node:timers/promises';
import type { NostrEvent } from '../events/rules/event.js';
import { isRefusal, type Outcome, type Refusal, words } from '../events/rules/reply.js';
import { checkInterrupt, type Filling, partOf } from './filling.js';
import { signDraft } from './keys.js';
import type { Draft, Use } from './rules-drafts.js';

const WINDOW = 64;
const ATTEMPTS_MAX = 20;
const RETRY_MS_MAX = 1_000;

/** These change what was stored before, so the order counts. */
const IN_ORDER: ReadonlySet<Use> = new Set(['profile', 'article', 'deletion', 'report', 'vanish']);

export interface Probe {
  /** Public keys whose events an earlier run has erased: their profile is refused. */
  readonly gone: ReadonlySet<string>;
  /** Ids of the profiles that were sent. */
  readonly sent: ReadonlySet<string>;
}

/** Before anything else about them is written: an erased person must not become a member again. */
export async function probeGone(filling: Filling): Promise<Probe> {
  const { story } = filling;
  const gone = new Set<string>();
  const sent = new Set<string>();
  for (const part of ['vanishing', 'erased', 'leaving'] as const) {
    const { pubkey } = partOf(story, part);
    const profile = story.drafts.find((draft) => draft.use === 'profile' && draft.pubkey === pubkey)!;
    if (isRefusal(await send(filling, profile))) gone.add(pubkey);
    sent.add(profile.id);
  }
  return { gone, sent };
}

export async function fillEvents(filling: Filling, { sent }: Probe): Promise<void> {
  const { story } = filling;
  let window: Draft[] = [];
  const flush = async () => {
    await Promise.all(window.map((draft) => send(filling, draft)));
    window = [];
  };
  for (const draft of story.drafts.filter(({ id }) => !sent.has(id))) {
    checkInterrupt(filling);
    if (IN_ORDER.has(draft.use)) await flush();
    window.push(draft);
    if (IN_ORDER.has(draft.use) || window.length >= WINDOW) await flush();
  }
  await flush();
}

async function send(filling: Filling, draft: Draft): Promise<Outcome | Refusal> {
  const outcome = await admit(filling, signDraft(draft, filling.keys[draft.place]!));
  filling.tally.note('events', outcome === 'stored');
  return outcome;
}

/**
 * The outcome. A refusal because the event was here before, or has expired, is returned; another one ends the
 * run, because the demo would have gaps.
 */
export async function admit(
  { admission, community }: Pick<Filling, 'admission' | 'community'>,
  event: NostrEvent,
): Promise<Outcome | Refusal> {
  for (let attempt = 1; ; attempt += 1) {
    const outcome = await admission.admit(community(), event);
    if (!isRefusal(outcome) || wasHere(outcome)) return outcome;
    const isBusy = outcome.refused === 'rate-limited' || outcome.refused === 'error';
    if (!isBusy || attempt >= ATTEMPTS_MAX)
      throw new Error(`the community ${community().slug} refuses an event of the demo: ${words(outcome)}`);
    await delay(Math.min(RETRY_MS_MAX, 20 * 2 ** attempt));
  }
}

const wasHere = ({ refused, why }: Refusal) =>
  refused === 'blocked' || (refused === 'invalid' && why === 'expired');

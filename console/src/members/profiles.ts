/** Names of authors, from their profiles (kind 0) on this node. Asked for together, and kept. */
import { useEffect, useSyncExternalStore } from 'react';
import { relay } from './relay.js';
import { onMemberChange, useMember } from './session.js';

const GATHER_MS = 40;
const AUTHORS_MAX = 100;
const NAME_LENGTH_MAX = 60;

const names = new Map<string, string | null>();
const wanted = new Set<string>();
const listeners = new Set<() => void>();
let isAsking = false;
// Another key may read other profiles.
onMemberChange(() => names.clear());

function onChange(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

function askSoon(): void {
  if (isAsking) return;
  isAsking = true;
  setTimeout(() => void ask(), GATHER_MS);
}

async function ask(): Promise<void> {
  isAsking = false;
  const authors = [...wanted].slice(0, AUTHORS_MAX);
  for (const author of authors) wanted.delete(author);
  if (wanted.size > 0) askSoon();
  for (const author of authors) names.set(author, null);
  for (const { pubkey, content } of await relay.query([{ kinds: [0], authors }]))
    names.set(pubkey, nameIn(content));
  for (const listener of listeners) listener();
}

function nameIn(content: string): string | null {
  try {
    const profile = JSON.parse(content) as { display_name?: unknown; name?: unknown };
    const name = [profile.display_name, profile.name].find(
      (each) => typeof each === 'string' && each.trim() !== '',
    ) as string | undefined;
    return name === undefined ? null : name.trim().replace(/\s+/g, ' ').slice(0, NAME_LENGTH_MAX);
  } catch {
    return null;
  }
}

/** Null while it is not known, and for people without a name. */
export function useName(pubkey: string): string | null {
  const reader = useMember()?.pubkey;
  // Another reader asks again.
  useEffect(() => {
    if (names.has(pubkey)) return;
    wanted.add(pubkey);
    askSoon();
  }, [pubkey, reader]);
  return useSyncExternalStore(onChange, () => names.get(pubkey) ?? null);
}

/** A person with the name of the profile. Names of the people on a page are read in few requests. */
import { useQuery } from '@tanstack/react-query';
import { api, dataOf } from '../shared/api.js';
import { Person } from '../shared/components/person.js';

const KEYS_MAX = 50;
const WAIT_MS = 15;
const KEPT_MS = 5 * 60_000;

interface Profile {
  readonly name: string | null;
  readonly display_name: string | null;
}

export const nameIn = (profile: Profile | null | undefined): string | null =>
  profile?.display_name ?? profile?.name ?? null;

type Settle = { readonly resolve: (name: string | null) => void; readonly reject: (error: unknown) => void };
let waiting = new Map<string, Settle[]>();

/** Collects the keys that are asked for at about the same time. */
function nameOf(pubkey: string): Promise<string | null> {
  return new Promise((resolve, reject) => {
    if (waiting.size === 0) setTimeout(readWaiting, WAIT_MS);
    waiting.set(pubkey, [...(waiting.get(pubkey) ?? []), { resolve, reject }]);
  });
}

function readWaiting(): void {
  const asked = [...waiting];
  waiting = new Map();
  for (let from = 0; from < asked.length; from += KEYS_MAX) void readSome(asked.slice(from, from + KEYS_MAX));
}

async function readSome(asked: readonly (readonly [string, readonly Settle[]])[]): Promise<void> {
  try {
    const pubkeys = asked.map(([pubkey]) => pubkey).join(',');
    const { items } = await dataOf(api.GET('/v1/admin/profiles', { params: { query: { pubkeys } } }));
    const names = new Map(items.map(({ pubkey, profile }) => [pubkey, nameIn(profile)]));
    for (const [pubkey, settles] of asked)
      for (const { resolve } of settles) resolve(names.get(pubkey) ?? null);
  } catch (error) {
    for (const [, settles] of asked) for (const { reject } of settles) reject(error);
  }
}

export function useName(pubkey: string): string | null | undefined {
  return useQuery({ queryKey: ['name', pubkey], queryFn: () => nameOf(pubkey), staleTime: KEPT_MS }).data;
}

export function Someone({ pubkey, to }: { readonly pubkey: string; readonly to?: string }) {
  return <Person pubkey={pubkey} name={useName(pubkey)} to={to} />;
}

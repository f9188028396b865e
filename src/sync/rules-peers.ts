/** The peers of a community as its setting `sync.peers` names them. Pure. */
import { z } from 'zod';

const URL_LENGTH_MAX = 500;
export const PEERS_MAX = 20;
const TOPICS_MAX = 100;
/** That of topics/rules.ts, which knows the settings and so cannot be known by them. */
const TOPIC_LENGTH_MAX = 256;
export const MINUTES_MAX = 43_200;

/** As it is stored and compared: without a fragment, credentials or superfluous parts. */
export function peerUrl(text: string): string | undefined {
  if (text.length > URL_LENGTH_MAX || !URL.canParse(text)) return undefined;
  const url = new URL(text);
  const isPlain = url.username === '' && url.password === '' && url.hash === '';
  return /^wss?:$/.test(url.protocol) && url.hostname !== '' && isPlain ? url.href : undefined;
}

export const peerSchema = z.object({
  url: z
    .string()
    .max(URL_LENGTH_MAX)
    .refine(
      (text) => peerUrl(text) === text,
      'url: a ws:// or wss:// address, as "minato peers add" writes it',
    ),
  direction: z.enum(['down', 'up', 'both']),
  everyMinutes: z.number().int().min(1).max(MINUTES_MAX),
  /** Empty: the whole community. */
  topics: z.array(z.string().min(1).max(TOPIC_LENGTH_MAX)).max(TOPICS_MAX),
});

export type SyncPeer = z.infer<typeof peerSchema>;

export const peersSchema = z
  .array(peerSchema)
  .max(PEERS_MAX)
  .refine((peers) => new Set(peers.map(({ url }) => url)).size === peers.length, 'each url once');

/** Is its next sync due? `startedAt`: of the last one. Milliseconds. */
export function isDue({ everyMinutes }: SyncPeer, startedAt: number | undefined, nowMs: number): boolean {
  return startedAt === undefined || nowMs - startedAt >= everyMinutes * 60_000;
}

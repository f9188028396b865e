/** The command `minato sync`: exchanges events with another relay, once or as long as it runs. */
import { Command, InvalidArgumentError } from 'commander';
import { oneOf } from '../cli/answers.js';
import { COMMUNITY_OPTION, chooseCommunity, withDatabase } from '../cli/context.js';
import { bytesText, count, type Interruption, startProgress, watchInterruption } from '../cli/progress.js';
import { isTopic } from '../topics/rules.js';
import type { Direction, Synced, SyncOptions, SyncParts, SyncPlan, SyncProgress } from './exchange.js';
import { syncWithPeer } from './exchange.js';
import { peerUrl } from './rules-peers.js';
import { watchPeer } from './watch.js';

const EXIT_FAILED = 1;
const DIRECTIONS: readonly Direction[] = ['down', 'up', 'both'];

interface Options {
  community: string;
  topic?: string[];
  since?: number;
  direction: Direction;
  watch?: true;
}

export function syncCommand(): Command {
  return new Command('sync')
    .description('exchange events with another relay: by negentropy (NIP-77), or by pages of REQ')
    .argument('<url>', 'the websocket address of the relay, such as wss://relay.example.org', urlArgument)
    .option(...COMMUNITY_OPTION)
    .option('--topic <id>', 'only this topic; may be given several times', topicArguments)
    .option(
      '--since <time>',
      'only events from then on: seconds since 1970, a date, or 12h, 30d',
      sinceArgument,
    )
    .option('--direction <way>', 'down: fetch, up: send, both', oneOf(DIRECTIONS), 'down')
    .option('--watch', 'then follow new events until it is interrupted; reconnects by itself')
    .addHelpText(
      'after',
      `
Events pass the same checks as a post, without the rates of authors. Deleted, purged and erased events stay
out. Only events that anybody may see are sent, and those of topics that are named with --topic; private kinds
and protected events (NIP-70) are never sent. Where the relay asks for it, the command authenticates with the
relay key of the community.

An interrupted sync can be repeated: it transfers only what is still missing. With a relay that does not know
negentropy it continues where it stopped.

Exit code: 0 both sides were compared as a whole, 1 it failed or was stopped, 130 interrupted.

Examples:
  $ minato sync wss://relay.example.org --topic kukuri:7f… --direction both
  $ minato sync wss://relay.example.org --since 30d
  $ minato sync wss://relay.example.org --watch`,
    )
    .action(sync);
}

async function sync(url: string, options: Options): Promise<void> {
  const interruption = watchInterruption();
  try {
    await withDatabase(async ({ database, config, log }) => {
      const { startWriter } = await import('../node/writer.js');
      const writer = await startWriter({ database, config, log });
      try {
        const community = chooseCommunity(writer.communities, options.community).id;
        const parts: SyncParts = {
          ...writer,
          pool: database.pool,
          diskLevel: writer.disk.levelFor,
          log,
          now: Date.now,
        };
        const { topic: topics, since, direction } = options;
        await run({ community, url, direction, topics, since }, parts, options, interruption);
      } finally {
        await writer.close();
      }
    });
  } finally {
    interruption.done();
  }
}

async function run(
  plan: SyncPlan,
  parts: SyncParts,
  { watch }: Options,
  interruption: Interruption,
): Promise<void> {
  const progress = startProgress(undefined);
  const options: SyncOptions = {
    signal: interruption.signal,
    isLowPriority: false,
    // The operator names the peer here.
    allowsPrivate: true,
    onProgress: (now) => progress.update(now.step, progressLine(now)),
  };
  if (watch) {
    await watchPeer(plan, parts, options, {
      onSynced: (result) => report(result),
      onBroken: (why, waitMs) =>
        process.stderr.write(`${why}; trying again in ${Math.round(waitMs / 1_000)} s\n`),
    });
    process.exitCode = interruption.exitCode() ?? 0;
    return;
  }
  const result = await syncWithPeer(plan, parts, options);
  progress.stop();
  report(result);
  if (result.ended === 'complete') return;
  process.exitCode = interruption.exitCode() ?? EXIT_FAILED;
}

function progressLine({ step, steps, method, received, stored, sent }: SyncProgress): string {
  return (
    `${method}, filter ${Math.min(step + 1, steps)} of ${steps}: ` +
    `${count(received)} received, ${count(stored)} stored, ${count(sent)} sent`
  );
}

function report(result: Synced): void {
  const { refused, sentRefused, rounds, incompleteSeconds, bytesIn, bytesOut, method, ended, why } = result;
  const rows: [string, number][] = [
    ['received', result.received],
    ['stored', result.stored],
    ['duplicates', result.duplicates],
    ...byPrefix('refused here', refused),
    ['known, not fetched', result.skipped],
    ['promised, not delivered', result.missing],
    ['sent', result.sent],
    ...byPrefix('refused there', sentRefused),
    ['not for everybody, not sent', result.keptBack],
  ];
  for (const [name, times] of rows) process.stdout.write(`${name.padEnd(32)} ${count(times).padStart(12)}\n`);
  const how = method === 'negentropy' ? `negentropy, ${count(rounds)} rounds` : 'pages of REQ';
  process.stdout.write(`${how}, ${bytesText(bytesIn)} in, ${bytesText(bytesOut)} out\n`);
  if (incompleteSeconds > 0)
    process.stderr.write(
      `In ${count(incompleteSeconds)} seconds the relay has more events than it sends at once.\n`,
    );
  if (ended !== 'complete')
    process.stderr.write(`Not complete: ${why}. Run the command again to continue.\n`);
}

function byPrefix(name: string, counts: Readonly<Record<string, number>>): [string, number][] {
  return Object.entries(counts)
    .sort()
    .map(([prefix, times]) => [`${name}: ${prefix}`, times]);
}

function urlArgument(text: string): string {
  const url = peerUrl(text);
  if (url === undefined) throw new InvalidArgumentError('must be a ws:// or wss:// address.');
  return url;
}

export function topicArguments(text: string, before: readonly string[] = []): string[] {
  if (!isTopic(text)) throw new InvalidArgumentError('must be the id of a topic.');
  return [...before, text];
}

const UNIT_SECONDS: Record<string, number> = { m: 60, h: 3_600, d: 86_400 };

export function sinceArgument(text: string): number {
  if (/^\d{1,12}$/.test(text)) return Number(text);
  const ago = /^(\d{1,6})([mhd])$/.exec(text);
  if (ago !== null) return Math.floor(Date.now() / 1_000) - Number(ago[1]) * UNIT_SECONDS[ago[2]!]!;
  const date = Date.parse(text);
  if (Number.isNaN(date)) throw new InvalidArgumentError('must be seconds, a date, or a time such as 30d.');
  return Math.floor(date / 1_000);
}

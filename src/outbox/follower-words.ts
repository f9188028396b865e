/** Describes problems of followers of the outbox for the command line, and what to do about them. */
import type { Client } from 'pg';
import { timeText } from '../cli/answers.js';
import { count } from '../cli/progress.js';
import { listAwaiting } from '../erasure/erasures.sql.js';
import { waitText } from '../erasure/words.js';
import type { Problem } from './consumers/words.js';
import { type Follower, listFollowers } from './followers.sql.js';

const ERASURES_SHOWN_MAX = 20;

/** Of every community: followers that have missed rows, and followers that an erasure waits for. */
export async function followerProblems(client: Client): Promise<Problem[]> {
  const followers = await listFollowers(client, undefined, Date.now());
  const awaiting = await listAwaiting(client, ERASURES_SHOWN_MAX);
  return [
    ...followers.flatMap((follower) => followerProblem(follower) ?? []),
    ...awaiting.flatMap(({ erasureId, slug, waits }) =>
      waits.map((follower) => ({
        text: `community ${slug}: erasure ${erasureId} waits for ${waitText(follower)}`,
        advice:
          'Make sure that this service runs and acknowledges what it reads; or: ' +
          `minato followers remove ${follower.name} -c ${slug}`,
      })),
    ),
  ];
}

export function followerProblem({
  slug,
  name,
  acknowledgedSeq,
  mustRebuild,
  overrunAt,
  pinnedSeq,
}: Follower): Problem | undefined {
  if (!mustRebuild) return undefined;
  const why =
    overrunAt === null
      ? 'the outbox no longer has the rows that it needs next'
      : `an erasure continued without it at ${timeText(overrunAt)}`;
  const text =
    `follower ${name} of ${slug} has acknowledged up to ${count(acknowledgedSeq)} ` +
    `and must rebuild: ${why}`;
  const advice =
    pinnedSeq === null
      ? 'It may still have deleted events. Make sure that the service runs and rebuilds; or: ' +
        `minato followers remove ${name} -c ${slug}`
      : 'It is rebuilding.';
  return { text, advice };
}

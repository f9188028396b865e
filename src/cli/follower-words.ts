/** What is wrong with a follower of the outbox, in the words of the command line, and what to do about it. */
import type { Client } from 'pg';
import { listAwaiting } from '../store/erasures.js';
import { type Follower, listFollowers } from '../store/followers.js';
import { timeText } from './answers.js';
import type { Problem } from './consumer-words.js';
import { waitText } from './erasure-words.js';
import { count } from './progress.js';

const ERASURES_SHOWN_MAX = 20;

/** Of every community: those that have missed something, and those that an erasure waits for. */
export async function followerProblems(client: Client): Promise<Problem[]> {
  const followers = await listFollowers(client, undefined, Date.now());
  const awaiting = await listAwaiting(client, ERASURES_SHOWN_MAX);
  return [
    ...followers.flatMap((follower) => followerProblem(follower) ?? []),
    ...awaiting.flatMap(({ erasureId, slug, waits }) =>
      waits.map((follower) => ({
        text: `community ${slug}: erasure ${erasureId} waits for ${waitText(follower)}`,
        advice: `See that this service runs and acknowledges what it reads; or: minato followers remove ${follower.name} -c ${slug}`,
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
      ? 'it is further behind than the outbox reaches'
      : `an erasure went on without it at ${timeText(overrunAt)}`;
  const text = `follower ${name} of ${slug} has acknowledged up to ${count(acknowledgedSeq)} and must rebuild: ${why}`;
  const advice =
    pinnedSeq === null
      ? `It may hold what was deleted. See that the service runs, and rebuilds; or: minato followers remove ${name} -c ${slug}`
      : 'It is rebuilding.';
  return { text, advice };
}

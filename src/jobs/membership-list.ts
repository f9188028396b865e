/** Keeps the published list of members (NIP-43) as the members are, where a community publishes it; takes it back where not. */
import type { EventTemplate } from 'nostr-tools/pure';
import type { Client } from 'pg';
import type { Community } from '../communities.js';
import { KIND_DELETION } from '../core/classify.js';
import { type NostrEvent, serializeEvent } from '../core/event.js';
import { KIND_MEMBERS, membersIn, membersTemplate } from '../core/joining.js';
import { readCurrentEvent } from '../store/current-event.js';
import { listMemberKeys } from '../store/members.js';
import type { Job, JobContext, JobResult } from './job.js';

/** With 77 bytes each, they fit into an event that other relays take. */
const MEMBERS_MAX = 5_000;

export const membershipList: Job = {
  name: 'membership-list',
  cron: '* * * * *',
  about: 'publishes who is a member (NIP-43), where membership.list is on',
  purges: false,
  run: async (context, client): Promise<JobResult> => {
    let changed = 0;
    for (const community of context.communities.all()) {
      if (context.signal.aborted) return { changed, more: true };
      if (await bringUpToDate(context, client, community)) changed += 1;
    }
    return { changed, more: false };
  },
  dryRun: async () => [],
};

async function bringUpToDate(context: JobContext, client: Client, community: Community): Promise<boolean> {
  const { id, self, settings } = community;
  if (self === undefined) return false;
  const published = await readCurrentEvent(client, { community: id, pubkey: self, kind: KIND_MEMBERS });
  if (!settings['membership.list']) return published !== undefined && takeBack(context, community, published);
  const members = await listMemberKeys(client, id, MEMBERS_MAX);
  if (published !== undefined && membersIn(published).join() === members.join()) return false;
  const createdAt = Math.max(Math.floor(context.now() / 1_000), (published?.created_at ?? 0) + 1);
  return publish(context, community, membersTemplate(members, createdAt));
}

function takeBack(
  context: JobContext,
  community: Community,
  { id, created_at }: NostrEvent,
): Promise<boolean> {
  const tags = [
    ['e', id],
    ['k', `${KIND_MEMBERS}`],
  ];
  const at = Math.max(Math.floor(context.now() / 1_000), created_at);
  return publish(context, community, { kind: KIND_DELETION, created_at: at, tags, content: '' });
}

async function publish(
  { lane, erasing: { keys } }: JobContext,
  { id }: Community,
  template: EventTemplate,
): Promise<boolean> {
  const event = await keys.sign(id, 'relay', template);
  return (await lane.submit({ community: id, event, payload: serializeEvent(event) })) === 'stored';
}

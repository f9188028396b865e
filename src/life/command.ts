/** The command `minato events life`: the life of one event as a timeline. */
import { Command, InvalidArgumentError } from 'commander';
import { COMMUNITY_OPTION, withCommunity } from '../cli/context.js';
import { copyCommand, dropCommand } from '../events/copy/command.js';
import { parseNamed } from './event-name.js';
import { readLife, type WholeLife } from './life.js';
import type { LifeEntry } from './rules.js';

export function eventsCommand(): Command {
  const events = new Command('events').description('what happened to an event, and where events are kept');
  events.addCommand(copyCommand());
  events.addCommand(dropCommand());
  events
    .command('life')
    .argument('<id>', 'hex, note or nevent', eventArgument)
    .description('show when an event arrived, what hid, deleted or purged it, and what keeps it out')
    .option(...COMMUNITY_OPTION)
    .option('--json', 'print it as the API returns it')
    .addHelpText(
      'after',
      `
Works also for an event that is no longer stored, or that was deleted before it arrived.

Examples:
  $ minato events life 5c83da77af1dec6d7289834998ad7aafbd9e2191396d75ec3cc27f5a77226f36`,
    )
    .action((id: string, { community: slug, json }: { community: string; json?: boolean }) =>
      withCommunity(slug, async ({ database, events }, community) => {
        const life = await readLife(database.pool, events.stored, community, id, Date.now());
        if (life === undefined) throw new Error(`nothing is known about ${id} in ${slug}`);
        // Loaded only here: the routes load the whole API.
        const text = json
          ? JSON.stringify((await import('./routes.js')).showLife(id, life))
          : linesOf(id, life).join('\n');
        process.stdout.write(`${text}\n`);
      }),
    );
  return events;
}

function eventArgument(text: string): string {
  const named = parseNamed(text);
  if (named !== undefined && 'id' in named) return named.id;
  throw new InvalidArgumentError('must be 64 lowercase hex characters, a note or a nevent.');
}

function linesOf(id: string, { status, hidden, author, event, indexed, timeline, again }: WholeLife) {
  const { comesBack, reply = '', also } = again;
  const back = comesBack === undefined ? 'depends on its author' : comesBack ? 'is stored' : 'is not stored';
  return [
    `${id}  ${status}${hidden === undefined ? '' : ` (${hidden})`}`,
    `author: ${author ?? 'unknown'}`,
    ...(event === undefined ? [] : [`kind: ${event.kind}, ${indexed ? 'indexed' : 'not indexed'}`]),
    ...timeline.map(lineOf),
    `sent again: ${[back, reply, ...also].filter((text) => text !== '').join('; ')}`,
  ];
}

function lineOf({ at, what, event, pubkey, caseId, ruleId, detail }: LifeEntry): string {
  const time = at === null ? 'time unknown        ' : `${new Date(at).toISOString().slice(0, 19)}Z`;
  const named = [
    detail,
    event && `event ${event}`,
    pubkey && `by ${pubkey}`,
    caseId && `case ${caseId}`,
    ruleId && `rule ${ruleId}`,
  ];
  return [`${time}  ${what}`, ...named.filter((text) => text !== undefined)].join('  ');
}

/** The command `minato requests`: lists, approves and rejects requests for topics. */
import { Command } from 'commander';
import { granted, oneOf, printAll, timeText } from '../cli/answers.js';
import { COMMUNITY_OPTION, withCommunity } from '../cli/context.js';
import { approveRequest, listRequests, rejectRequest, type TopicRequest } from './requests.sql.js';
import { REQUEST_STATUSES, type RequestStatus } from './rules-requests.js';

interface ReviewOptions {
  community: string;
  note?: string;
}

export function requestsCommand(): Command {
  const requests = new Command('requests').description(
    'requests of members for topics: show, approve or reject them',
  );
  requests
    .command('list', { isDefault: true })
    .description('show pending requests, oldest first, or those with another status, newest first')
    .option(...COMMUNITY_OPTION)
    .option(
      '--status <status>',
      REQUEST_STATUSES.join(', '),
      oneOf(REQUEST_STATUSES),
      'pending' as RequestStatus,
    )
    .addHelpText(
      'after',
      `
Examples:
  $ minato requests
  $ minato requests list --status rejected -c art`,
    )
    .action(({ community: slug, status }: { community: string; status: RequestStatus }) =>
      withCommunity(slug, ({ database }, { id }) =>
        printAll(
          (page) => listRequests(database.pool, { community: id, status }, page),
          lineOf,
          `no request is ${status}`,
        ),
      ),
    );
  requests
    .command('approve <request-id>')
    .description('give the member the topic; the node carries it from now on')
    .option(...COMMUNITY_OPTION)
    .option('--note <text>', 'a note that the member sees')
    .addHelpText(
      'after',
      `
Examples:
  $ minato requests approve 7f0c2a4e-53cf-4a51-9f0b-2d1c6f0e8a11 --note "Welcome aboard"`,
    )
    .action((requestId: string, { community: slug, note }: ReviewOptions) =>
      withCommunity(slug, async ({ database }, { id, settings }) => {
        const cap = { enabledMax: settings['topic.enabledMax'] };
        const review = { community: id, requestId, note };
        const { request } = granted(await approveRequest(database.pool, review, cap, Date.now()));
        process.stdout.write(`${lineOf(request)}\n`);
      }),
    );
  requests
    .command('reject <request-id>')
    .description('reject a request; the member may request it again')
    .option(...COMMUNITY_OPTION)
    .option('--note <text>', 'why; the member sees it')
    .addHelpText(
      'after',
      `
Examples:
  $ minato requests reject 7f0c2a4e-53cf-4a51-9f0b-2d1c6f0e8a11 --note "Please request your town"`,
    )
    .action((requestId: string, { community: slug, note }: ReviewOptions) =>
      withCommunity(slug, async ({ database }, { id }) => {
        const review = { community: id, requestId, note };
        const request = granted(await rejectRequest(database.pool, review, Date.now()));
        process.stdout.write(`${lineOf(request)}\n`);
      }),
    );
  return requests;
}

function lineOf({ requestId, createdAt, status, pubkey, topic, name, reviewNote }: TopicRequest): string {
  const words = [name, reviewNote].flatMap((text) => (text === null ? [] : [JSON.stringify(text)]));
  return [requestId, timeText(createdAt), status.padEnd(9), pubkey, topic, ...words].join('  ');
}

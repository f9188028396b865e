/**
 * I12: every table of the schema, once. A new table is declared in the `tables.sql.ts` of its domain and
 * added here; a test fails for a table that is missing. The order is the order of an erasure: events first,
 * so that nothing new is derived from them; children before their parents; accounts after the rows whose
 * conditions need them; the outbox last.
 */
import { auditLogTable } from '../audit/tables.sql.js';
import { blockedAddressesTable, blockedAuthorsTable, blockedWordsTable } from '../blocks/tables.sql.js';
import {
  communitiesTable,
  communitySettingsTable,
  configVersionTable,
  nodeSettingsTable,
} from '../communities/tables.sql.js';
import { streamShardsTable } from '../events/dynamodb/tables.sql.js';
import {
  capacityStepsTable,
  communityTotalsTable,
  deletionQuotasTable,
  deletionTombstonesTable,
  eventDedupeTable,
  eventHeadsTable,
  eventsTable,
  eventTagsTable,
  historyDeletionsTable,
  laneStateTable,
  liveBusTable,
  topicTotalsTable,
  vanishMarksTable,
} from '../events/postgres/tables.js';
import { jobRunsTable } from '../jobs/tables.sql.js';
import { nodeKeysTable, subjectKeyRequestsTable } from '../keys/tables.sql.js';
import { labelsTable } from '../labels/tables.sql.js';
import { rateBucketsTable, usedCredentialsTable } from '../limits/tables.sql.js';
import { invitesTable, membersTable, operatorsTable } from '../members/tables.sql.js';
import {
  moderationActionsTable,
  moderationBatchesTable,
  moderationCasesTable,
  moderationRatesTable,
  moderationRulesTable,
  moderationVersionTable,
} from '../moderation/tables.sql.js';
import { nodeStateTable } from '../node/tables.sql.js';
import {
  consumerDeadLettersTable,
  consumerOffsetsTable,
  consumerRebuildsTable,
  eventsOutboxTable,
  outboxFollowersTable,
  outboxStreamsTable,
} from '../outbox/tables.sql.js';
import { communitySizesTable, nodeSamplesTable } from '../overview/tables.sql.js';
import { p2pLeaseTable, p2pMachinesTable } from '../p2p/tables.sql.js';
import { personalDataFilesTable, personalDataRequestsTable } from '../personal-data/tables.sql.js';
import {
  planEventsTable,
  plansTable,
  usageCountersTable,
  usageRequestsTable,
  webhookSecretsTable,
} from '../plans/tables.sql.js';
import { consentsTable, policyTextsTable, policyVersionsTable } from '../policies/tables.sql.js';
import { type DeleterName, type ErasedTable, isErased, type Table } from '../postgres/table.js';
import { reportsTable } from '../reports/tables.sql.js';
import { postSearchDocumentsTable, searchRulesTable } from '../search/tables.sql.js';
import {
  csrfTokensTable,
  operatorSessionsTable,
  revokedTokensTable,
  signInLinksTable,
} from '../sessions/tables.sql.js';
import { syncPositionsTable, syncRunsTable } from '../sync/tables.sql.js';
import {
  blockedTopicsTable,
  nodeSubscriptionsTable,
  topicSubscriptionRequestsTable,
  topicSubscriptionsTable,
} from '../topics/tables.sql.js';
import {
  trustAuthorsTable,
  trustContactsTable,
  trustDueTable,
  trustPeopleTable,
  trustReportsTable,
  trustRulesTable,
  trustScoresTable,
  trustSweepsTable,
} from '../trust/tables.sql.js';
import {
  erasureAlarmsTable,
  erasureCertificatesTable,
  erasureMarksTable,
  erasuresTable,
} from './tables.sql.js';

export const TABLES: readonly Table[] = [
  operatorSessionsTable,
  csrfTokensTable,
  rateBucketsTable,
  auditLogTable,
  eventsTable,
  eventTagsTable,
  labelsTable,
  postSearchDocumentsTable,
  searchRulesTable,
  reportsTable,
  moderationActionsTable,
  moderationCasesTable,
  moderationBatchesTable,
  moderationRatesTable,
  trustContactsTable,
  trustPeopleTable,
  trustReportsTable,
  trustAuthorsTable,
  trustDueTable,
  trustScoresTable,
  trustRulesTable,
  trustSweepsTable,
  topicSubscriptionsTable,
  topicSubscriptionRequestsTable,
  consentsTable,
  usageCountersTable,
  usageRequestsTable,
  planEventsTable,
  revokedTokensTable,
  signInLinksTable,
  invitesTable,
  operatorsTable,
  blockedAuthorsTable,
  outboxFollowersTable,
  outboxStreamsTable,
  personalDataFilesTable,
  personalDataRequestsTable,
  membersTable,
  nodeSubscriptionsTable,
  blockedTopicsTable,
  eventDedupeTable,
  eventHeadsTable,
  deletionTombstonesTable,
  deletionQuotasTable,
  historyDeletionsTable,
  consumerDeadLettersTable,
  vanishMarksTable,
  liveBusTable,
  moderationRulesTable,
  communitySettingsTable,
  policyTextsTable,
  policyVersionsTable,
  plansTable,
  webhookSecretsTable,
  blockedWordsTable,
  blockedAddressesTable,
  communityTotalsTable,
  topicTotalsTable,
  communitySizesTable,
  syncRunsTable,
  syncPositionsTable,
  capacityStepsTable,
  nodeKeysTable,
  erasuresTable,
  erasureMarksTable,
  erasureAlarmsTable,
  eventsOutboxTable,
  communitiesTable,
  configVersionTable,
  moderationVersionTable,
  nodeSettingsTable,
  nodeStateTable,
  laneStateTable,
  streamShardsTable,
  consumerOffsetsTable,
  consumerRebuildsTable,
  jobRunsTable,
  nodeSamplesTable,
  usedCredentialsTable,
  subjectKeyRequestsTable,
  p2pLeaseTable,
  p2pMachinesTable,
  erasureCertificatesTable,
];

export interface Store {
  readonly name: string;
  readonly tables: readonly ErasedTable[];
  /** The deleter, where the conditions of the tables are not enough. */
  readonly by: DeleterName | undefined;
}

const erasedTables = TABLES.filter(isErased);

/** In the order of an erasure. */
export const STORES: readonly Store[] = [...new Set(erasedTables.map(({ erased }) => erased.store))].map(
  (name) => {
    const tables = erasedTables.filter(({ erased }) => erased.store === name);
    return { name: `postgres:${name}`, tables, by: tables[0]!.erased.by };
  },
);

/** The name and the tables of a store, for a deleter that is registered elsewhere. */
export function storeBy(by: DeleterName): { readonly name: string; readonly holds: readonly string[] } {
  const { name, tables } = STORES.find((store) => store.by === by)!;
  return { name, holds: tables.map((table) => table.name) };
}

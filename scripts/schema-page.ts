/**
 * Makes docs/schema.md: every table of a migrated database with its columns, its indexes and its declaration.
 */
import type { ClientBase, Pool } from 'pg';
import { TABLES } from '../src/erasure/all-tables.sql.js';
import {
  type Erased,
  isErased,
  type KeyColumn,
  memberRowsOf,
  type Table,
  walksOf,
} from '../src/postgres/table.js';

interface Column {
  readonly table: string;
  readonly name: string;
  readonly type: string;
  readonly rule: string;
}

interface Named {
  readonly table: string;
  readonly text: string;
}

/** Partitions have the columns and indexes of their table. */
const IS_TABLE = `k.relnamespace = 'public'::regnamespace
    AND k.relkind IN ('r', 'p') AND NOT k.relispartition`;

const COLUMNS_SQL = `
  SELECT k.relname AS table, a.attname AS name, format_type(a.atttypid, a.atttypmod) AS type,
    concat_ws(', ',
      CASE WHEN a.attnotnull THEN 'not null' END,
      CASE WHEN a.attidentity <> '' THEN 'identity' END,
      'default ' || pg_get_expr(d.adbin, d.adrelid)) AS rule
  FROM pg_class k JOIN pg_attribute a ON a.attrelid = k.oid AND a.attnum > 0 AND NOT a.attisdropped
  LEFT JOIN pg_attrdef d ON d.adrelid = k.oid AND d.adnum = a.attnum
  WHERE ${IS_TABLE} ORDER BY k.relname, a.attnum`;

const INDEXES_SQL = `
  SELECT k.relname AS table,
    format('\`%s\`%s %s', x.relname, CASE WHEN i.indisunique THEN ' unique' ELSE '' END,
    regexp_replace(pg_get_indexdef(i.indexrelid), '^.* USING (btree )?', '')) AS text
  FROM pg_class k JOIN pg_index i ON i.indrelid = k.oid JOIN pg_class x ON x.oid = i.indexrelid
  WHERE ${IS_TABLE} ORDER BY k.relname, NOT i.indisprimary, x.relname COLLATE "C"`;

const REFERENCES_SQL = `
  SELECT k.relname AS table, regexp_replace(pg_get_constraintdef(c.oid), '^FOREIGN KEY ', '') AS text
  FROM pg_class k JOIN pg_constraint c ON c.conrelid = k.oid AND c.contype = 'f'
  WHERE ${IS_TABLE} ORDER BY k.relname, c.conname COLLATE "C"`;

export async function schemaPage(db: ClientBase | Pool): Promise<string> {
  const { rows: columns } = await db.query<Column>(COLUMNS_SQL);
  const { rows: indexes } = await db.query<Named>(INDEXES_SQL);
  const { rows: references } = await db.query<Named>(REFERENCES_SQL);
  const tables = [...TABLES].sort((a, b) => (a.name < b.name ? -1 : 1));
  const of = (all: readonly Named[], { name }: Table) =>
    all.filter(({ table }) => table === name).map(({ text }) => text);
  const sections = tables.map((table) =>
    [
      `## ${table.name}`,
      table.row,
      '',
      columnTable(columns.filter((column) => column.table === table.name)),
      '',
      ...points('Indexes', of(indexes, table)),
      ...points('References', of(references, table)),
      ...points('Belongs to', [`${owner(table)}.`]),
      ...points('Finds people by', Object.entries(table.people).map(finder)),
      ...points('Shown to the person', shown(table)),
      ...points(
        'Not shown',
        Object.entries(table.inNoFile).map(([name, why]) => `\`${name}\`: ${why}`),
      ),
      ...points('Erased', isErased(table) ? erasure(table.erased) : ['Never.', why(table)]),
    ].join('\n'),
  );
  return [HEAD, summary(tables), ...sections].join('\n\n').concat('\n');
}

const HEAD = `# The schema

Made by \`npm run docs:schema\` from a migrated database and the declarations of the tables
(\`tables.sql.ts\` of each domain); a test fails when it is out of date. Do not edit it.

Times are milliseconds since 1970. The times of signed events are seconds: \`created_at\` and \`until\` of
events, \`requested_at\` of their deletions, \`signed_at\`, \`lapses_at\`, \`asserted_at\`. Partitions are not
listed: they have the columns of their table. How an erasure works:
[erasure](operations/erasure.md); what a person's file holds: [personal data](personal-data.md).`;

function summary(tables: readonly Table[]): string {
  const rows = tables.map((table) => {
    const files = Object.keys(table.files).map((name) => `\`${name}\``);
    const store = isErased(table) ? `\`postgres:${table.erased.store}\`` : 'never';
    return `| [${table.name}](#${table.name}) | ${owner(table)} | ${files.join(', ')} | ${store} |`;
  });
  return ['| table | belongs to | files of an export | erased as |', '|---|---|---|---|', ...rows].join('\n');
}

function columnTable(columns: readonly Column[]): string {
  const rows = columns.map(
    ({ name, type, rule }) => `| \`${name}\` | ${type} | ${rule.replaceAll('|', '\\|')} |`,
  );
  return ['| column | type | |', '|---|---|---|', ...rows].join('\n');
}

function points(title: string, lines: readonly string[]): string[] {
  if (lines.length === 0) return [];
  return [
    `- ${title}: ${lines.length === 1 ? lines[0] : ''}`.trimEnd(),
    ...(lines.length === 1 ? [] : lines.map((line) => `  - ${line}`)),
  ];
}

/** Rows of members, rows of the community that may name one, or neither. */
function owner(table: Table): string {
  if (!isErased(table)) return 'the node';
  const { people, keysIn, files, erased } = table;
  const isMembers = Object.values(people).some((how) => how === 'small' || !('unchecked' in how));
  if (isMembers || erased.through !== undefined || erased.by !== undefined) return 'members';
  const names = keysIn !== undefined || erased.member !== undefined || Object.keys(files).length > 0;
  return names ? 'the community; may name a member' : 'the community';
}

function finder([column, how]: [string, KeyColumn]): string {
  if (how === 'small') return `\`${column}\`: the table is small and read as a whole.`;
  if ('unchecked' in how) return `\`${column}\`: not searched. ${how.unchecked}`;
  return `\`${column}\`: index ${walksOf(how)
    .map(({ index }) => `\`${index}\``)
    .join(' and ')}.`;
}

const shown = ({ files }: Table) =>
  Object.entries(files).map(
    ([name, { about, names }]) =>
      `\`${name}.jsonl\` (${names.map((column) => `\`${column}\``).join(', ')}): ${about}`,
  );

const why = ({ erased }: Table) => ('never' in erased ? erased.never : '');

function erasure(erased: Erased): string[] {
  const { store, by, member, community, uncounted = false } = erased;
  const lines = [`In certificates: \`postgres:${store}\`.`];
  if (by !== undefined) lines.push(`By the deleter \`${by}\` (\`src/erasure/stores\`).`);
  if (member !== undefined) {
    const steps = memberRowsOf(erased);
    if (steps.some(({ release }) => release === undefined)) lines.push('Rows of a member are deleted.');
    for (const { release } of steps)
      if (release !== undefined) lines.push(`Rows that only name a member stay: \`${release}\`.`);
  }
  if (by === undefined || member !== undefined)
    lines.push(
      community !== undefined
        ? `With the community: \`${community.replace(/\s+/g, ' ')}\`.`
        : `With the community: all its rows${uncounted ? ', uncounted' : ''}.`,
    );
  return lines;
}

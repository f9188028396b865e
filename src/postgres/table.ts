/**
 * I12: each table is declared once, in the `tables.sql.ts` of its domain: what a row is, which columns name a
 * person and which index finds them, what a personal export shows, and how its rows are erased. Erasure,
 * export and the daily check are derived from these declarations (erasure/all-tables.sql.ts). A test compares
 * them with the schema of a migrated database.
 */

/**
 * An index that begins with community and the column. The check goes from key to key, independent of the
 * number of rows per key.
 */
export interface Walk {
  readonly index: string;
  /** The condition of a partial index; true for the rows that are checked. */
  readonly where?: string;
}

/** The daily check does not read the column; the text says why. */
export interface Unchecked {
  readonly unchecked: string;
}

/**
 * A column with public keys. `small`: it has no such index, and the daily check reads the few rows of the
 * table.
 */
export type KeyColumn = Walk | readonly Walk[] | 'small' | Unchecked;

/**
 * One file of a personal export. The parameters `:community`, `:pubkey` (bytes), `:hex` and `:recipient` (the
 * key of their `p` tag) name the person.
 */
export type PersonalFile = FileOf & RowsOfFile;

/** `where` and `order` apply to the rows of the community; or `from` is the whole FROM clause. */
type RowsOfFile =
  | { readonly where: string; readonly order?: string; readonly from?: undefined }
  | { readonly from: string };

interface FileOf {
  /** A sentence that describes it to the person. */
  readonly about: string;
  /** Columns that name the person or are about them. */
  readonly names: readonly [string, ...string[]];
  /** The SELECT list. */
  readonly columns: string;
  readonly shape?: (row: Record<string, unknown>) => object;
  /** Rows that are read at once; an event may have a megabyte. */
  readonly portionRows?: number;
}

/**
 * Rows of a member; `t` is the table. The subject is `:community`, `:pubkey` (bytes) and `:hex`, up to
 * `:until` (seconds) or `:ms` (milliseconds). `:bounded`: it has such a time. `:staying`: newer events of
 * theirs that are in another store. `:vanishes`: the member asked
 * for it by NIP-62.
 */
export interface MemberRows {
  readonly where: string;
  /**
   * The row belongs to somebody else or to the community: it is updated with this SET clause and kept. `u` is
   * the table.
   */
  readonly release?: string;
  /** One batch is deleted and not counted, because others add rows at the same time. */
  readonly uncounted?: boolean;
  /** A statement about the rows of a batch (`changed`), in the same transaction. */
  readonly follow?: string;
}

export interface Erased {
  /** `postgres:<store>` in certificates. Tables of one store are erased together. */
  readonly store: string;
  /** Steps, each a condition or more. Without any, no row belongs to a member. */
  readonly member?: readonly (string | MemberRows)[];
  /** A condition, if not all rows of a community are erased with it. */
  readonly community?: string;
  /** How a row belongs to a community, if it has no such column. */
  readonly through?: string;
  readonly isPartitioned?: boolean;
  /** Rows of a community: one batch is deleted and not counted, because others add rows at the same time. */
  readonly uncounted?: boolean;
  /** A function of erasure/stores deletes the rows, and counts them if `member` is missing. */
  readonly by?: DeleterName;
  /** With `by`: conditions of rows that show that a key has data here. */
  readonly traces?: readonly string[];
}

export type DeleterName = 'audit' | 'events' | 'labels' | 'outbox' | 'rates' | 'sessions';

/** No erasure deletes its rows; the text says why. */
export interface NeverErased {
  readonly never: string;
}

interface Declaration<How> {
  /** What a row is, in a sentence. */
  readonly row: string;
  readonly people?: Readonly<Record<string, KeyColumn>>;
  /**
   * A text expression that contains public keys in hex (`t` is the table). The daily check reads all rows.
   */
  readonly keysIn?: string;
  /** By file name, without .jsonl. */
  readonly files?: Readonly<Record<string, PersonalFile>>;
  /** Columns that name a person, or seem to, and why no file shows them. */
  readonly inNoFile?: Readonly<Record<string, string>>;
  readonly erased: How;
}

export interface Table<How = Erased | NeverErased> extends Required<Omit<Declaration<How>, 'keysIn'>> {
  readonly name: string;
  readonly keysIn?: string;
}

export type ErasedTable = Table<Erased>;

export function declareTable<How extends Erased | NeverErased>(
  name: string,
  declaration: Declaration<How>,
): Table<How> {
  return { name, people: {}, files: {}, inNoFile: {}, ...declaration };
}

export const isErased = (table: Table): table is ErasedTable => !('never' in table.erased);

export const memberRowsOf = ({ member = [] }: Erased): MemberRows[] =>
  member.map((rows) => (typeof rows === 'string' ? { where: rows } : rows));

export const walksOf = (column: KeyColumn): readonly Walk[] =>
  column === 'small' || 'unchecked' in column ? [] : 'index' in column ? [column] : column;

/** Conditions of a PersonalFile for the rows of the person. */
export const OF_PUBKEY = 'pubkey = :pubkey';
export const OF_AUTHOR = 'author = :pubkey';

export const hexOf = (column: string) => `encode(${column}, 'hex') AS ${column.replace(/^\w+\./, '')}`;

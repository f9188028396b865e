/**
 * A list of any length: only the rows on the screen are in the document, and the next page is read when the
 * reader comes near the end of this one.
 */
import { Button, Center, Checkbox, Group, Table, Text } from '@mantine/core';
import { useWindowVirtualizer } from '@tanstack/react-virtual';
import { type ReactNode, useCallback, useEffect, useMemo, useRef } from 'react';
import { useT } from '../i18n.js';
import { Failure, Loading } from './states.js';

export interface Column<T> {
  readonly label: string;
  readonly show: (row: T) => ReactNode;
  readonly isNumber?: boolean;
  readonly width?: number | string;
  /** Left out on narrow screens. */
  readonly isMinor?: boolean;
}

/** What `useList` returns. */
interface Listed<T> {
  readonly items: readonly T[];
  readonly isPending: boolean;
  /** The rows of other filters, while those of these are read. */
  readonly isPlaceholderData?: boolean;
  readonly error: unknown;
  readonly hasNextPage: boolean;
  readonly isFetchingNextPage: boolean;
  readonly fetchNextPage: () => unknown;
  readonly refetch: () => unknown;
}

interface DataTableProps<T> {
  readonly label: string;
  readonly list: Listed<T>;
  readonly columns: readonly Column<T>[];
  readonly keyOf: (row: T) => string;
  readonly empty: ReactNode;
  readonly selected?: ReadonlySet<string>;
  readonly onSelect?: (keys: ReadonlySet<string>) => void;
  /** The usual height of a row in pixels: with many rows a good guess saves work. */
  readonly rowHeight?: number;
}

const ROW_HEIGHT = 49;
const AHEAD = 12;

export function DataTable<T>(props: DataTableProps<T>) {
  const { label, list, columns, keyOf, empty, selected, onSelect, rowHeight = ROW_HEIGHT } = props;
  const t = useT();
  const { items, hasNextPage, isFetchingNextPage, isPlaceholderData: isOld = false, fetchNextPage } = list;
  const body = useRef<HTMLTableSectionElement>(null);
  const keyIn = useRef(keyOf);
  keyIn.current = keyOf;
  // With other functions the places of all rows would be computed again, at every step of the scrolling.
  const estimateSize = useCallback(() => rowHeight, [rowHeight]);
  const getItemKey = useCallback((index: number) => keyIn.current(items[index]!), [items]);
  const virtual = useWindowVirtualizer({
    count: items.length,
    estimateSize,
    overscan: AHEAD,
    scrollMargin: body.current?.offsetTop ?? 0,
    getItemKey,
  });
  const keys = useMemo(
    () => (onSelect === undefined ? [] : items.map((row) => keyIn.current(row))),
    [items, onSelect === undefined],
  );
  const shown = virtual.getVirtualItems();
  const last = shown.at(-1)?.index ?? 0;
  useEffect(() => {
    const isNear = last >= items.length - AHEAD;
    if (hasNextPage && !isFetchingNextPage && !isOld && isNear) fetchNextPage();
  }, [last, items.length, hasNextPage, isFetchingNextPage, isOld, fetchNextPage]);

  if (list.isPending) return <Loading />;
  if (list.error !== null && items.length === 0)
    return <Failure error={list.error} retry={() => void list.refetch()} />;
  if (items.length === 0) return <>{empty}</>;

  const margin = virtual.options.scrollMargin;
  const above = (shown[0]?.start ?? margin) - margin;
  const below = virtual.getTotalSize() - ((shown.at(-1)?.end ?? margin) - margin);
  const chosen = selected === undefined || selected.size === 0 ? 0 : count(keys, selected);
  const span = columns.length + (onSelect ? 1 : 0);
  const visible = (column: Column<T>) => (column.isMinor ? 'sm' : undefined);
  return (
    <div className={isOld ? 'table-old' : undefined} inert={isOld} data-loading={isOld || undefined}>
      <div className="table-scroll">
        <Table
          aria-label={label}
          aria-rowcount={hasNextPage ? -1 : items.length + 1}
          highlightOnHover
          verticalSpacing="xs"
        >
          <Table.Thead>
            <Table.Tr>
              {onSelect && (
                <Table.Th w={40}>
                  <Checkbox
                    aria-label={t('shared:selectAll')}
                    checked={chosen === items.length}
                    indeterminate={chosen > 0 && chosen < items.length}
                    onChange={() => onSelect(new Set(chosen === items.length ? [] : keys))}
                  />
                </Table.Th>
              )}
              {columns.map((column) => (
                <Table.Th
                  key={column.label}
                  w={column.width}
                  ta={column.isNumber ? 'right' : undefined}
                  visibleFrom={visible(column)}
                >
                  {column.label}
                </Table.Th>
              ))}
            </Table.Tr>
          </Table.Thead>
          <Table.Tbody ref={body}>
            {above > 0 && (
              <Table.Tr aria-hidden>
                <Table.Td colSpan={span} h={above} p={0} />
              </Table.Tr>
            )}
            {shown.map(({ index, key }) => {
              const row = items[index]!;
              const own = keyOf(row);
              return (
                <Table.Tr
                  key={String(key)}
                  data-index={index}
                  ref={virtual.measureElement}
                  aria-rowindex={index + 2}
                >
                  {onSelect && (
                    <Table.Td>
                      <Checkbox
                        aria-label={t('shared:selectRow')}
                        checked={selected?.has(own) ?? false}
                        onChange={() => onSelect(toggled(selected, own))}
                      />
                    </Table.Td>
                  )}
                  {columns.map((column) => (
                    <Table.Td
                      key={column.label}
                      ta={column.isNumber ? 'right' : undefined}
                      className={column.isNumber ? 'number' : undefined}
                      visibleFrom={visible(column)}
                    >
                      {column.show(row)}
                    </Table.Td>
                  ))}
                </Table.Tr>
              );
            })}
            {below > 0 && (
              <Table.Tr aria-hidden>
                <Table.Td colSpan={span} h={below} p={0} />
              </Table.Tr>
            )}
          </Table.Tbody>
        </Table>
      </div>
      <Center py="sm">
        {hasNextPage ? (
          <Button variant="subtle" loading={isFetchingNextPage} onClick={() => fetchNextPage()}>
            {t('shared:more')}
          </Button>
        ) : (
          <Text size="xs" c="dimmed">
            {t('shared:end')}
          </Text>
        )}
      </Center>
    </div>
  );
}

const count = (keys: readonly string[], selected: ReadonlySet<string>): number =>
  keys.filter((key) => selected.has(key)).length;

function toggled(selected: ReadonlySet<string> | undefined, key: string): ReadonlySet<string> {
  const next = new Set(selected);
  if (!next.delete(key)) next.add(key);
  return next;
}

/** The actions on selected rows, shown while there are any. */
export function Selection({ count, children }: { readonly count: number; readonly children: ReactNode }) {
  const t = useT();
  if (count === 0) return null;
  return (
    <Group gap="sm" mb="sm" role="region" aria-label={t('shared:selected', { count })}>
      <Text size="sm" fw={600}>
        {t('shared:selected', { count })}
      </Text>
      {children}
    </Group>
  );
}

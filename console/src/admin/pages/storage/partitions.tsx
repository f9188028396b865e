/** The partitions of events, each from its month to the day when it is dropped. */
import { Box, Table, Text } from '@mantine/core';
import { TableScroll } from '../../../shared/components/table-scroll.js';
import { bytes, date, number } from '../../../shared/format.js';
import { currentLanguage, useT } from '../../../shared/i18n.js';
import { type NodeStorage, Section } from './storage.js';

type Partition = NodeStorage['partitions'][number];

const monthOf = (from: number) =>
  new Intl.DateTimeFormat(currentLanguage(), { year: 'numeric', month: 'short', timeZone: 'UTC' }).format(
    from,
  );

export function Partitions({ partitions }: { readonly partitions: readonly Partition[] }) {
  const t = useT();
  const now = Date.now();
  const first = Math.min(now, ...partitions.flatMap(({ from }) => from ?? []));
  const last = Math.max(now, ...partitions.flatMap(({ until, drops_at }) => drops_at ?? until ?? []));
  const place = (at: number) => ((at - first) / Math.max(1, last - first)) * 100;
  return (
    <Section title={t('storage:partitions')} about={t('storage:partitionsAbout')}>
      <TableScroll label={t('storage:partitions')}>
        <Table aria-label={t('storage:partitions')} verticalSpacing={6}>
          <Table.Thead>
            <Table.Tr>
              <Table.Th>{t('storage:month')}</Table.Th>
              <Table.Th>{t('storage:kept')}</Table.Th>
              <Table.Th ta="right" visibleFrom="sm">
                {t('storage:events')}
              </Table.Th>
              <Table.Th ta="right">{t('storage:size')}</Table.Th>
              <Table.Th visibleFrom="md" w="34%">
                {t('storage:timeLine')}
              </Table.Th>
              <Table.Th>{t('storage:drops')}</Table.Th>
            </Table.Tr>
          </Table.Thead>
          <Table.Tbody>
            {partitions.map((one) => (
              <Table.Tr key={`${one.bucket}/${one.from}`}>
                <Table.Td style={{ whiteSpace: 'nowrap' }}>
                  {one.from === null ? t('storage:allTime') : monthOf(one.from)}
                </Table.Td>
                <Table.Td>{t(`storage:bucket.${one.bucket}`)}</Table.Td>
                <Table.Td ta="right" className="number" visibleFrom="sm">
                  {one.rows === null ? '–' : number(one.rows)}
                </Table.Td>
                <Table.Td ta="right" className="number">
                  {bytes(one.bytes + one.tag_bytes)}
                </Table.Td>
                <Table.Td visibleFrom="md">
                  <Line partition={one} place={place} now={now} />
                </Table.Td>
                <Table.Td style={{ whiteSpace: 'nowrap' }}>
                  {one.drops_at === null ? (
                    <Text size="sm" c="dimmed">
                      {t('storage:never')}
                    </Text>
                  ) : (
                    date(one.drops_at)
                  )}
                </Table.Td>
              </Table.Tr>
            ))}
          </Table.Tbody>
        </Table>
      </TableScroll>
    </Section>
  );
}

interface LineProps {
  readonly partition: Partition;
  readonly place: (at: number) => number;
  readonly now: number;
}

/** Dark: the month itself. Light: as long as it is kept after that. The thin line is today. */
function Line({ partition: { from, until, drops_at }, place, now }: LineProps) {
  const start = from === null ? 0 : place(from);
  const end = from === null || until === null ? 100 : place(until);
  const drop = drops_at === null ? (from === null ? 100 : end) : place(drops_at);
  const bar = (left: number, right: number, background: string) => (
    <Box
      pos="absolute"
      top={3}
      h={8}
      style={{ left: `${left}%`, width: `${Math.max(0.5, right - left)}%`, background, borderRadius: 4 }}
    />
  );
  return (
    <Box pos="relative" h={14} aria-hidden>
      {drop > end && bar(start, drop, 'var(--mantine-color-harbour-light)')}
      {bar(start, end, 'var(--mantine-primary-color-filled)')}
      <Box
        pos="absolute"
        top={0}
        h={14}
        w={2}
        style={{ left: `${place(now)}%`, background: 'var(--mantine-color-text)' }}
      />
    </Box>
  );
}

/** Sizes, retention and capacity, with the partitions on a time line and a preview of the next purge. */
import { Alert, Badge, Paper, Progress, SimpleGrid, Stack, Table, Text, Title } from '@mantine/core';
import { useQuery } from '@tanstack/react-query';
import type { ReactNode } from 'react';
import { api, dataOf } from '../../../shared/api.js';
import { PageHead } from '../../../shared/components/page-head.js';
import { Failure, Loading } from '../../../shared/components/states.js';
import { TableScroll } from '../../../shared/components/table-scroll.js';
import { bytes, number } from '../../../shared/format.js';
import { useT } from '../../../shared/i18n.js';
import type { paths } from '../../../shared/schema.js';
import { Partitions } from './partitions.js';
import { PurgePreview } from './purge.js';
import './texts.js';

export type Storage = paths['/v1/admin/storage']['get']['responses'][200]['content']['application/json'];
export type NodeStorage = NonNullable<Storage['node']>;
type Capacity = paths['/v1/admin/capacity']['get']['responses'][200]['content']['application/json'];

const REFRESH_MS = 30_000;

export default function StoragePage() {
  const t = useT();
  const storage = useQuery({
    queryKey: ['storage'],
    queryFn: () => dataOf(api.GET('/v1/admin/storage')),
    refetchInterval: REFRESH_MS,
  });
  const capacity = useQuery({
    queryKey: ['capacity'],
    queryFn: () => dataOf(api.GET('/v1/admin/capacity')),
    refetchInterval: REFRESH_MS,
  });
  return (
    <>
      <PageHead title={t('storage:title')} about={t('storage:about')} />
      {storage.isPending && <Loading />}
      {storage.isError && <Failure error={storage.error} retry={() => void storage.refetch()} />}
      {storage.data && (
        <Stack gap="xl">
          <SimpleGrid cols={{ base: 1, sm: storage.data.node ? 3 : 2 }}>
            <Figure label={t('storage:served')} value={number(storage.data.events)}>
              {bytes(storage.data.bytes)}
            </Figure>
            {storage.data.node && (
              <Figure label={t('storage:database')} value={bytes(storage.data.node.database_bytes)} />
            )}
            {capacity.data && <CapacityFigure capacity={capacity.data} />}
          </SimpleGrid>
          <Retention storage={storage.data} />
          {storage.data.node === null ? (
            <Alert variant="light" role="note">
              {t('storage:nodeOnly')}
            </Alert>
          ) : (
            <>
              <Groups groups={storage.data.node.groups} />
              <Partitions partitions={storage.data.node.partitions} />
              <PurgePreview />
            </>
          )}
        </Stack>
      )}
    </>
  );
}

interface FigureProps {
  readonly label: string;
  readonly value: ReactNode;
  readonly children?: ReactNode;
}

function Figure({ label, value, children }: FigureProps) {
  return (
    <Paper withBorder p="md">
      <Text size="sm" c="dimmed">
        {label}
      </Text>
      <Text fz={26} fw={650} className="number">
        {value}
      </Text>
      {children && (
        <Text size="sm" c="dimmed" component="div">
          {children}
        </Text>
      )}
    </Paper>
  );
}

const COLORS = ['teal', 'yellow', 'orange', 'red'] as const;

function CapacityFigure({ capacity: { space, disk, marks } }: { readonly capacity: Capacity }) {
  const t = useT();
  const hasLimit = space.max_events > 0 || space.max_bytes > 0;
  const steps = { s1: marks[1].from, s2: marks[2].from, s3: marks[3].from };
  return (
    <Paper withBorder p="md">
      <Stack gap={6}>
        <Text size="sm" c="dimmed">
          {t('storage:capacity')}
        </Text>
        <Text fw={600}>{t(`storage:step.s${space.step}`)}</Text>
        {hasLimit ? (
          <>
            <Progress
              value={Math.min(100, space.percent)}
              color={COLORS[space.step]}
              aria-label={t('storage:capacity')}
            />
            <Text size="sm">{t('storage:ofLimit', { percent: number(space.percent) })}</Text>
            <Text size="xs" c="dimmed">
              {t('storage:limits', {
                events: space.max_events === 0 ? t('storage:unlimited') : number(space.max_events),
                size: space.max_bytes === 0 ? t('storage:unlimited') : bytes(space.max_bytes),
              })}{' '}
              {t('storage:steps', steps)}
            </Text>
          </>
        ) : (
          <Text size="sm" c="dimmed">
            {t('storage:noLimit')}
          </Text>
        )}
        {disk.free_percent !== null && (
          <Text size="sm" c="dimmed">
            {t('storage:disk', { percent: number(disk.free_percent, 1) })}
          </Text>
        )}
      </Stack>
    </Paper>
  );
}

export function Section({
  title,
  about,
  children,
}: {
  readonly title: string;
  readonly about?: string;
  readonly children: ReactNode;
}) {
  return (
    <Stack gap="xs">
      <Title order={2} size="h4">
        {title}
      </Title>
      {about && (
        <Text size="sm" c="dimmed">
          {about}
        </Text>
      )}
      {children}
    </Stack>
  );
}

function Retention({ storage }: { readonly storage: Storage }) {
  const t = useT();
  const keptFor = (days: number | null) => {
    if (days === null) return t('storage:forever');
    return days === 0 ? t('storage:atOnce') : t('storage:days', { count: days });
  };
  return (
    <SimpleGrid cols={{ base: 1, lg: 2 }} spacing="xl">
      <Section title={t('storage:retention')}>
        <TableScroll label={t('storage:retention')}>
          <Table aria-label={t('storage:retention')}>
            <Table.Thead>
              <Table.Tr>
                <Table.Th>{t('storage:what')}</Table.Th>
                <Table.Th>{t('storage:kept')}</Table.Th>
                <Table.Th visibleFrom="sm">{t('storage:setting')}</Table.Th>
              </Table.Tr>
            </Table.Thead>
            <Table.Tbody>
              {storage.retention.map(({ class: of, days, setting }) => (
                <Table.Tr key={of}>
                  <Table.Td>{t(`storage:class.${of}`)}</Table.Td>
                  <Table.Td style={{ whiteSpace: 'nowrap' }}>{keptFor(days)}</Table.Td>
                  <Table.Td visibleFrom="sm" className="mono">
                    {setting}
                  </Table.Td>
                </Table.Tr>
              ))}
            </Table.Tbody>
          </Table>
        </TableScroll>
      </Section>
      {storage.topics.length > 0 && (
        <Section
          title={t('storage:ownDays')}
          {...(storage.more_topics && { about: t('storage:moreTopics') })}
        >
          <TableScroll label={t('storage:ownDays')}>
            <Table aria-label={t('storage:ownDays')}>
              <Table.Thead>
                <Table.Tr>
                  <Table.Th>{t('storage:topic')}</Table.Th>
                  <Table.Th>{t('storage:kept')}</Table.Th>
                  <Table.Th ta="right">{t('storage:size')}</Table.Th>
                </Table.Tr>
              </Table.Thead>
              <Table.Tbody>
                {storage.topics.map((topic) => (
                  <Table.Tr key={topic.topic_id}>
                    <Table.Td style={{ overflowWrap: 'anywhere' }}>{topic.name ?? topic.topic_id}</Table.Td>
                    <Table.Td style={{ whiteSpace: 'nowrap' }}>{keptFor(topic.days)}</Table.Td>
                    <Table.Td ta="right" className="number">
                      {bytes(topic.bytes)}
                    </Table.Td>
                  </Table.Tr>
                ))}
              </Table.Tbody>
            </Table>
          </TableScroll>
        </Section>
      )}
    </SimpleGrid>
  );
}

function Groups({ groups }: { readonly groups: NodeStorage['groups'] }) {
  const t = useT();
  const sumOf = (one: NodeStorage['groups'][number]) => one.table_bytes + one.index_bytes;
  const all = groups.reduce((sum, one) => sum + sumOf(one), 0);
  const largest = [...groups].sort((a, b) => sumOf(b) - sumOf(a));
  return (
    <Section title={t('storage:groups')}>
      <TableScroll label={t('storage:groups')}>
        <Table aria-label={t('storage:groups')}>
          <Table.Thead>
            <Table.Tr>
              <Table.Th>{t('storage:what')}</Table.Th>
              <Table.Th ta="right" visibleFrom="sm">
                {t('storage:rows')}
              </Table.Th>
              <Table.Th ta="right" visibleFrom="sm">
                {t('storage:tables')}
              </Table.Th>
              <Table.Th ta="right" visibleFrom="sm">
                {t('storage:indexes')}
              </Table.Th>
              <Table.Th ta="right">{t('storage:sum')}</Table.Th>
              <Table.Th w="28%" visibleFrom="md" aria-hidden />
            </Table.Tr>
          </Table.Thead>
          <Table.Tbody>
            {largest.map((one) => (
              <Table.Tr key={one.group}>
                <Table.Td>{t(`storage:group.${one.group}`)}</Table.Td>
                <Table.Td ta="right" className="number" visibleFrom="sm">
                  {number(one.rows)}
                </Table.Td>
                <Table.Td ta="right" className="number" visibleFrom="sm">
                  {bytes(one.table_bytes)}
                </Table.Td>
                <Table.Td ta="right" className="number" visibleFrom="sm">
                  {bytes(one.index_bytes)}
                </Table.Td>
                <Table.Td ta="right" className="number" fw={600}>
                  {bytes(sumOf(one))}
                </Table.Td>
                <Table.Td visibleFrom="md" aria-hidden>
                  <Progress.Root size="sm">
                    <Progress.Section value={(one.table_bytes / (all || 1)) * 100} />
                    <Progress.Section value={(one.index_bytes / (all || 1)) * 100} color="harbour.3" />
                  </Progress.Root>
                </Table.Td>
              </Table.Tr>
            ))}
          </Table.Tbody>
        </Table>
      </TableScroll>
      <Badge variant="default" tt="none">
        {t('storage:sum')}: {bytes(all)}
      </Badge>
    </Section>
  );
}

/** What the jobs would purge now. It is counted when the operator asks for it. */
import { Alert, Button, Group, Table } from '@mantine/core';
import { useQuery } from '@tanstack/react-query';
import { api, dataOf } from '../../../shared/api.js';
import { Failure } from '../../../shared/components/states.js';
import { TableScroll } from '../../../shared/components/table-scroll.js';
import { number } from '../../../shared/format.js';
import { useT } from '../../../shared/i18n.js';
import { useMay } from '../../session.js';
import { Section } from './storage.js';

const TOPICS_SHOWN = 3;

export function PurgePreview() {
  const t = useT();
  const may = useMay('operator');
  const { data, error, isFetching, refetch } = useQuery({
    queryKey: ['purge-preview'],
    queryFn: () => dataOf(api.GET('/v1/admin/storage/purge-preview')),
    enabled: false,
    retry: false,
  });
  if (!may) return null;
  return (
    <Section title={t('storage:purge')} about={t('storage:purgeAbout')}>
      <Group>
        <Button variant="default" loading={isFetching} onClick={() => void refetch()}>
          {t('storage:count')}
        </Button>
      </Group>
      {error && !isFetching && <Failure error={error} />}
      {data && !data.complete && (
        <Alert color="yellow" variant="light" role="note">
          {t('storage:incomplete')}
        </Alert>
      )}
      {data && data.counts.length === 0 && (
        <Alert variant="light" role="status">
          {t('storage:nothing')}
        </Alert>
      )}
      {data && data.counts.length > 0 && (
        <TableScroll label={t('storage:purge')}>
          <Table aria-label={t('storage:purge')}>
            <Table.Thead>
              <Table.Tr>
                <Table.Th>{t('storage:job')}</Table.Th>
                <Table.Th>{t('storage:reason')}</Table.Th>
                <Table.Th>{t('storage:what')}</Table.Th>
                <Table.Th ta="right">{t('storage:events')}</Table.Th>
                <Table.Th visibleFrom="sm">{t('storage:topics')}</Table.Th>
              </Table.Tr>
            </Table.Thead>
            <Table.Tbody>
              {data.counts.map(({ job, reason, class: of, rows, topics }) => (
                <Table.Tr key={`${job}/${reason}/${of}`}>
                  <Table.Td>{job}</Table.Td>
                  <Table.Td>{reason}</Table.Td>
                  <Table.Td>{of}</Table.Td>
                  <Table.Td ta="right" className="number">
                    {number(rows)}
                  </Table.Td>
                  <Table.Td visibleFrom="sm" style={{ overflowWrap: 'anywhere' }}>
                    {topics
                      .slice(0, TOPICS_SHOWN)
                      .map((one) => `${one.topic} (${number(one.rows)})`)
                      .join(', ')}
                  </Table.Td>
                </Table.Tr>
              ))}
            </Table.Tbody>
          </Table>
        </TableScroll>
      )}
    </Section>
  );
}

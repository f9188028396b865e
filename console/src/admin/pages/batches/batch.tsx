/** One batch: its progress while it runs, and what became of it. */
import { Anchor, Group, Paper, Progress, Stack, Table, Text, Title } from '@mantine/core';
import { useQuery } from '@tanstack/react-query';
import { Link, useParams } from '@tanstack/react-router';
import { api, dataOf } from '../../../shared/api.js';
import { PageHead } from '../../../shared/components/page-head.js';
import { Failure, Loading } from '../../../shared/components/states.js';
import { When } from '../../../shared/components/when.js';
import { number } from '../../../shared/format.js';
import { useT } from '../../../shared/i18n.js';
import { Someone } from '../../someone.js';
import { useSummary } from '../rules/summary.js';
import { BatchStatus, UndoBatch } from './parts.js';
import './texts.js';
import { type Batch, isMoving } from './types.js';

const READ_AGAIN_MS = 1_000;

export default function BatchPage() {
  const t = useT();
  const { batchId } = useParams({ strict: false }) as { batchId: string };
  const path = { batch_id: batchId };
  const query = useQuery({
    queryKey: ['batch', batchId],
    queryFn: () => dataOf(api.GET('/v1/admin/moderation/batches/{batch_id}', { params: { path } })),
    refetchInterval: ({ state }) =>
      state.data !== undefined && isMoving(state.data) ? READ_AGAIN_MS : false,
  });
  return (
    <>
      <Anchor component={Link} to="/batches" size="sm">
        {t('batches:back')}
      </Anchor>
      {query.isPending && <Loading />}
      {query.isError && <Failure error={query.error} retry={() => void query.refetch()} />}
      {query.data && <Whole batch={query.data} />}
    </>
  );
}

function Whole({ batch }: { readonly batch: Batch }) {
  const t = useT();
  const summary = useSummary()(batch.conditions);
  const outcomes = Object.entries(batch.outcomes);
  return (
    <>
      <PageHead
        title={t(`batches:actions.${batch.action}`)}
        about={
          <Group gap="sm">
            <BatchStatus status={batch.status} />
            <When at={batch.created_at} />
            {batch.actor === null ? t('batches:commandLine') : <Someone pubkey={batch.actor} />}
          </Group>
        }
      >
        <UndoBatch batch={batch} />
      </PageHead>
      <Stack>
        <Paper withBorder p="md" component="section">
          <Title order={2} size="h5" mb="xs">
            {t('batches:progress')}
          </Title>
          {isMoving(batch) && <Progress value={100} animated mb="sm" aria-label={t('batches:progress')} />}
          <Text className="number" role="status">
            {t('batches:progressIs', { matched: number(batch.matched), looked: number(batch.looked_at) })}
          </Text>
          {batch.stopped_early && <Text size="sm">{t('batches:stoppedEarly')}</Text>}
          {summary !== '' && (
            <Text size="sm" c="dimmed" mt="xs">
              {summary}
            </Text>
          )}
          {batch.note !== '' && (
            <Text size="sm" mt="xs" className="text">
              {batch.note}
            </Text>
          )}
        </Paper>
        {outcomes.length > 0 && (
          <Paper withBorder p="md" component="section">
            <Title order={2} size="h5" mb="xs">
              {t('batches:outcomes')}
            </Title>
            <Table aria-label={t('batches:outcomes')} maw={520}>
              <Table.Tbody>
                {outcomes.map(([outcome, count]) => (
                  <Table.Tr key={outcome}>
                    <Table.Td className="mono">{outcome}</Table.Td>
                    <Table.Td ta="right" className="number">
                      {number(count)}
                    </Table.Td>
                  </Table.Tr>
                ))}
              </Table.Tbody>
            </Table>
          </Paper>
        )}
      </Stack>
    </>
  );
}

/** One erasure: its progress per store, live, and what an operator can do about it. */
import {
  Alert,
  Badge,
  Button,
  Drawer,
  Group,
  List,
  Progress,
  Stack,
  Table,
  Text,
  TextInput,
  Title,
} from '@mantine/core';
import { useQuery, useQueryClient } from '@tanstack/react-query';
import { useState } from 'react';
import { api, dataOf, useAction } from '../../../shared/api.js';
import { Confirm } from '../../../shared/components/confirm.js';
import { Failure, Loading } from '../../../shared/components/states.js';
import { TableScroll } from '../../../shared/components/table-scroll.js';
import { When } from '../../../shared/components/when.js';
import { dateTime, number } from '../../../shared/format.js';
import { useT } from '../../../shared/i18n.js';
import { useLive } from '../../../shared/live.js';
import { notifyDone } from '../../../shared/providers.js';
import { Verification, ViewCertificate } from './certificates.js';
import { CERTIFICATES_KEY, ERASURES_KEY, type ErasureDetails, isEnded, stageColor } from './data.js';
import { Subject } from './erasures.js';

interface DrawerProps {
  readonly erasureId: string | undefined;
  readonly onClose: () => void;
}

export function ErasureDrawer({ erasureId, onClose }: DrawerProps) {
  const t = useT();
  const client = useQueryClient();
  const key = [...ERASURES_KEY, erasureId];
  const query = useQuery({
    queryKey: key,
    queryFn: () =>
      dataOf(
        api.GET('/v1/admin/erasures/{erasure_id}', { params: { path: { erasure_id: erasureId ?? '' } } }),
      ),
    enabled: erasureId !== undefined,
  });
  const isRunning = query.data !== undefined && !isEnded(query.data.stage);
  // The stream says that something has changed; the stores are read again then.
  useLive(
    isRunning ? `/v1/admin/erasures/${erasureId}/progress` : undefined,
    () => void client.invalidateQueries({ queryKey: ERASURES_KEY }),
    ['progress'],
  );
  return (
    <Drawer
      opened={erasureId !== undefined}
      onClose={onClose}
      position="right"
      size="xl"
      title={t('erasures:one')}
      closeButtonProps={{ 'aria-label': t('shared:close') }}
    >
      {query.isPending && <Loading />}
      {query.isError && <Failure error={query.error} retry={() => void query.refetch()} />}
      {query.data && <Details erasure={query.data} />}
    </Drawer>
  );
}

function Details({ erasure }: { readonly erasure: ErasureDetails }) {
  const t = useT();
  const { stage, rows_counted, rows_deleted, held_at, hold_reason } = erasure;
  const share = rows_counted === 0 ? (stage === 'completed' ? 100 : 0) : (rows_deleted / rows_counted) * 100;
  return (
    <Stack>
      <Group justify="space-between">
        <Title order={2} size="h4" component="div">
          <Subject erasure={erasure} />
        </Title>
        <Badge variant="dot" color={stageColor(stage)} tt="none">
          {t(`erasures:stages.${stage}`)}
        </Badge>
      </Group>
      <Text size="sm" c="dimmed" component="div">
        {t(`erasures:causes.${erasure.cause}`)} · <When at={erasure.requested_at} />
      </Text>
      {stage === 'grace' && (
        <Alert variant="light" role="note">
          {t('erasures:graceUntil')} {dateTime(erasure.grace_until)}
        </Alert>
      )}
      {held_at !== null && (
        <Alert color="orange" variant="light" role="note">
          {t('erasures:heldBecause', { date: dateTime(held_at), reason: hold_reason ?? '' })}
        </Alert>
      )}
      <Stack gap={4}>
        <Progress value={Math.min(100, share)} size="lg" aria-label={t('erasures:progress')} />
        <Text size="sm" className="number" role="status">
          {t('erasures:progressOf', { deleted: number(rows_deleted), counted: number(rows_counted) })}
        </Text>
      </Stack>
      <Steps erasure={erasure} />
      <Followers erasure={erasure} />
      <Stores stores={erasure.stores} />
      {stage === 'completed' && <OwnCertificate erasureId={erasure.erasure_id} />}
    </Stack>
  );
}

function Followers({ erasure: { waits_for, unacknowledged } }: { readonly erasure: ErasureDetails }) {
  const t = useT();
  if (waits_for.length + unacknowledged.length === 0) return null;
  return (
    <Alert color="yellow" variant="light" role="note">
      <List size="sm">
        {waits_for.map(({ follower, until }) => (
          <List.Item key={follower}>{t('erasures:waitsFor', { follower, date: dateTime(until) })}</List.Item>
        ))}
        {unacknowledged.map(({ follower }) => (
          <List.Item key={follower}>{t('erasures:unacknowledged', { follower })}</List.Item>
        ))}
      </List>
    </Alert>
  );
}

function Stores({ stores }: { readonly stores: ErasureDetails['stores'] }) {
  const t = useT();
  if (stores.length === 0) return null;
  return (
    <Stack gap="xs">
      <Title order={3} size="h5">
        {t('erasures:stores')}
      </Title>
      <TableScroll label={t('erasures:stores')}>
        <Table aria-label={t('erasures:stores')} verticalSpacing={6}>
          <Table.Thead>
            <Table.Tr>
              <Table.Th>{t('erasures:store')}</Table.Th>
              <Table.Th ta="right">{t('erasures:before')}</Table.Th>
              <Table.Th ta="right">{t('erasures:deleted')}</Table.Th>
              <Table.Th ta="right">{t('erasures:left')}</Table.Th>
            </Table.Tr>
          </Table.Thead>
          <Table.Tbody>
            {stores.map(({ name, counted, added, deleted, verified, failure, kept }) => (
              <Table.Tr key={name}>
                <Table.Td>
                  <Text size="sm" className="mono">
                    {name}
                  </Text>
                  {failure !== null && (
                    <Text size="xs" fw={600} lang="en">
                      {t('erasures:failure')}: {failure}
                    </Text>
                  )}
                  {kept !== null && (
                    <Text size="xs" c="dimmed">
                      {t('erasures:keptUntil', {
                        rows: number(kept.rows),
                        date: dateTime(kept.until),
                        why: kept.why,
                      })}
                    </Text>
                  )}
                </Table.Td>
                <Table.Td ta="right" className="number">
                  {counted === null ? '–' : number(counted + added)}
                </Table.Td>
                <Table.Td ta="right" className="number">
                  {number(deleted)}
                </Table.Td>
                <Table.Td ta="right" className="number">
                  {verified === null ? '–' : number(verified)}
                </Table.Td>
              </Table.Tr>
            ))}
          </Table.Tbody>
        </Table>
      </TableScroll>
    </Stack>
  );
}

type Step = 'hold' | 'release' | 'cancel' | 'retry';

function Steps({ erasure }: { readonly erasure: ErasureDetails }) {
  const t = useT();
  const [asked, setAsked] = useState<'hold' | 'cancel'>();
  const [reason, setReason] = useState('');
  const params = { path: { erasure_id: erasure.erasure_id } };
  const step = useAction(
    (name: Step) =>
      name === 'hold'
        ? dataOf(
            api.POST('/v1/admin/erasures/{erasure_id}/hold', { params, body: { reason: reason.trim() } }),
          )
        : dataOf(api.POST(`/v1/admin/erasures/{erasure_id}/${name}`, { params, body: {} })),
    {
      changes: [ERASURES_KEY, CERTIFICATES_KEY],
      onDone: () => {
        setAsked(undefined);
        setReason('');
        notifyDone(t('erasures:done'));
      },
    },
  );
  const { stage } = erasure;
  if (isEnded(stage)) return null;
  const isHeld = stage === 'held';
  return (
    <Group>
      {isHeld ? (
        <Button variant="default" loading={step.isPending} onClick={() => step.mutate('release')}>
          {t('erasures:release')}
        </Button>
      ) : (
        <Button variant="default" onClick={() => setAsked('hold')}>
          {t('erasures:hold')}
        </Button>
      )}
      {stage === 'failed' && (
        <Button variant="default" loading={step.isPending} onClick={() => step.mutate('retry')}>
          {t('erasures:retry')}
        </Button>
      )}
      {erasure.fenced_at === null && (
        <Button variant="default" onClick={() => setAsked('cancel')}>
          {t('erasures:cancel')}
        </Button>
      )}
      <Confirm
        opened={asked === 'hold'}
        title={t('erasures:holdTitle')}
        action={t('erasures:hold')}
        isHarmless
        isBusy={step.isPending}
        isDisabled={reason.trim() === ''}
        onConfirm={() => step.mutate('hold')}
        onClose={() => setAsked(undefined)}
      >
        <Text size="sm">{t('erasures:holdAbout')}</Text>
        <TextInput
          data-autofocus
          required
          maxLength={500}
          label={t('erasures:holdReason')}
          value={reason}
          onChange={(event) => setReason(event.currentTarget.value)}
        />
      </Confirm>
      <Confirm
        opened={asked === 'cancel'}
        title={t('erasures:cancelTitle')}
        action={t('erasures:cancelAction')}
        isHarmless
        isBusy={step.isPending}
        onConfirm={() => step.mutate('cancel')}
        onClose={() => setAsked(undefined)}
      >
        <Text size="sm">{t('erasures:cancelAbout', { rows: number(erasure.rows_counted) })}</Text>
      </Confirm>
    </Group>
  );
}

function OwnCertificate({ erasureId }: { readonly erasureId: string }) {
  const t = useT();
  const [isVerifying, setVerifying] = useState(false);
  const save = useAction(
    async () => {
      const path = { erasure_id: erasureId };
      const event = await dataOf(
        api.GET('/v1/admin/erasures/{erasure_id}/certificate', {
          params: { path },
          headers: { accept: 'application/json' },
        }),
      );
      const address = URL.createObjectURL(new Blob([JSON.stringify(event)], { type: 'application/json' }));
      const link = document.createElement('a');
      link.href = address;
      link.download = `certificate-${erasureId}.json`;
      link.click();
      URL.revokeObjectURL(address);
    },
    { changes: [] },
  );
  return (
    <Stack gap="xs">
      <Title order={3} size="h5">
        {t('erasures:certificate')}
      </Title>
      <Group>
        <ViewCertificate erasureId={erasureId} />
        <Button size="xs" variant="default" loading={save.isPending} onClick={() => save.mutate()}>
          {t('erasures:download')}
        </Button>
        <Button size="xs" variant="default" onClick={() => setVerifying(true)}>
          {t('erasures:verify')}
        </Button>
      </Group>
      {isVerifying && <Verification erasureId={erasureId} />}
    </Stack>
  );
}

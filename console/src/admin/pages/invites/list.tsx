/** The list of invites. A new one shows its code and its link once. */
import { Alert, Badge, Button, Code, Group, Modal, NumberInput, Stack, Text, TextInput } from '@mantine/core';
import { IconPlus, IconTicket } from '@tabler/icons-react';
import { useQuery } from '@tanstack/react-query';
import { useState } from 'react';
import { api, dataOf, useAction, useList } from '../../../shared/api.js';
import { Confirm } from '../../../shared/components/confirm.js';
import { Copy } from '../../../shared/components/copy.js';
import { type Column, DataTable } from '../../../shared/components/data-table.js';
import { PageHead } from '../../../shared/components/page-head.js';
import { Empty } from '../../../shared/components/states.js';
import { When } from '../../../shared/components/when.js';
import { useT } from '../../../shared/i18n.js';
import { membersBase } from '../../../shared/place.js';
import { notifyDone } from '../../../shared/providers.js';
import { useMay } from '../../session.js';
import { Someone } from '../../someone.js';
import { useTopicNames } from '../../topic-names.js';
import './texts.js';

const KEY = ['invites'];
const DAY_MS = 86_400_000;
const DAYS = 7;
const COLORS = { open: 'teal', used: 'blue', revoked: 'gray', expired: 'gray' } as const;

const read = (cursor: string | undefined) =>
  dataOf(api.GET('/v1/admin/invites', { params: { query: { cursor } } }));
type Invite = Awaited<ReturnType<typeof read>>['items'][number];

function statusOf({ used_at, revoked_at, expires_at }: Invite): keyof typeof COLORS {
  if (used_at !== null) return 'used';
  if (revoked_at !== null) return 'revoked';
  return expires_at <= Date.now() ? 'expired' : 'open';
}

const linkOf = (code: string) =>
  `${location.origin}${membersBase.replace(/\/$/, '')}/join/${encodeURIComponent(code)}`;

export default function Invites() {
  const t = useT();
  const mayAct = useMay('operator');
  const [isMaking, setMaking] = useState(false);
  const [code, setCode] = useState<string>();
  const [revoking, setRevoking] = useState<Invite>();
  const list = useList(KEY, read);
  const topics = useTopicNames();
  const revoke = useAction(
    (invite_id: string) =>
      dataOf(api.DELETE('/v1/admin/invites/{invite_id}', { params: { path: { invite_id } } })),
    {
      changes: [KEY],
      onDone: () => {
        setRevoking(undefined);
        notifyDone(t('invites:revoked'));
      },
    },
  );
  const person = (key: string | null, none: string) =>
    key === null ? none : <Someone pubkey={key} to={`/members/${key}`} />;
  const columns: Column<Invite>[] = [
    {
      label: t('invites:status'),
      width: 110,
      show: (row) => (
        <Badge variant="dot" tt="none" color={COLORS[statusOf(row)]}>
          {t(`invites:statuses.${statusOf(row)}`)}
        </Badge>
      ),
    },
    {
      label: t('invites:topic'),
      show: ({ topic_id }) => (
        <Text size="sm" truncate maw={220} title={topic_id ?? ''}>
          {topic_id === null ? t('invites:anyTopic') : (topics.get(topic_id) ?? topic_id)}
        </Text>
      ),
    },
    { label: t('invites:usedBy'), isMinor: true, show: ({ used_by }) => person(used_by, '–') },
    {
      label: t('invites:createdBy'),
      isMinor: true,
      show: ({ created_by }) => person(created_by, t('invites:commandLine')),
    },
    { label: t('invites:created'), isMinor: true, show: ({ created_at }) => <When at={created_at} /> },
    { label: t('invites:expires'), isMinor: true, show: ({ expires_at }) => <When at={expires_at} /> },
  ];
  if (mayAct)
    columns.push({
      label: '',
      width: 110,
      show: (row) =>
        statusOf(row) === 'open' && (
          <Button size="compact-sm" variant="default" onClick={() => setRevoking(row)}>
            {t('invites:revoke')}
          </Button>
        ),
    });
  const create = mayAct && (
    <Button leftSection={<IconPlus size={16} />} onClick={() => setMaking(true)}>
      {t('invites:create')}
    </Button>
  );
  return (
    <>
      <PageHead title={t('invites:title')} about={t('invites:about')}>
        {create}
      </PageHead>
      <Mode />
      <DataTable
        label={t('invites:title')}
        list={list}
        columns={columns}
        keyOf={({ invite_id }) => invite_id}
        empty={
          <Empty title={t('invites:empty')} icon={<IconTicket size={26} />}>
            {t('invites:emptyAbout')}
          </Empty>
        }
      />
      {isMaking && (
        <Make
          onClose={() => setMaking(false)}
          onMade={(made) => {
            setMaking(false);
            setCode(made);
          }}
        />
      )}
      {code !== undefined && <Made code={code} onClose={() => setCode(undefined)} />}
      <Confirm
        opened={revoking !== undefined}
        title={t('invites:revokeTitle')}
        action={t('invites:revoke')}
        isBusy={revoke.isPending}
        onClose={() => setRevoking(undefined)}
        onConfirm={() => revoking && revoke.mutate(revoking.invite_id)}
      >
        <Text size="sm">{t('invites:revokeAbout')}</Text>
      </Confirm>
    </>
  );
}

/** Says so where codes do not skip the review over the API. */
function Mode() {
  const t = useT();
  const setting = useQuery({
    queryKey: ['settings', 'subscription.autoApproval'],
    queryFn: () =>
      dataOf(api.GET('/v1/admin/settings/{key}', { params: { path: { key: 'subscription.autoApproval' } } })),
  });
  if (setting.data === undefined || setting.data.value === 'invite') return null;
  return (
    <Alert variant="light" color="gray" mb="md" role="note">
      {t('invites:modeOff')}
    </Alert>
  );
}

interface MakeProps {
  readonly onClose: () => void;
  readonly onMade: (code: string) => void;
}

function Make({ onClose, onMade }: MakeProps) {
  const t = useT();
  const [topic, setTopic] = useState('');
  const [days, setDays] = useState<number | string>(DAYS);
  const make = useAction(
    () =>
      dataOf(
        api.POST('/v1/admin/invites', {
          body: {
            expires_at: Date.now() + Number(days) * DAY_MS,
            ...(topic.trim() === '' ? {} : { topic_id: topic.trim() }),
          },
        }),
      ),
    { changes: [KEY], onDone: ({ code }) => onMade(code) },
  );
  return (
    <Confirm
      opened
      title={t('invites:create')}
      action={t('invites:create')}
      isHarmless
      isBusy={make.isPending}
      isDisabled={typeof days !== 'number'}
      onClose={onClose}
      onConfirm={() => make.mutate(undefined)}
    >
      <TextInput
        label={t('invites:topic')}
        description={t('invites:topicAbout')}
        placeholder="kukuri:…"
        value={topic}
        onChange={(event) => setTopic(event.currentTarget.value)}
      />
      <NumberInput
        label={t('invites:days')}
        min={1}
        max={365}
        allowDecimal={false}
        value={days}
        onChange={setDays}
      />
    </Confirm>
  );
}

function Made({ code, onClose }: { readonly code: string; readonly onClose: () => void }) {
  const t = useT();
  const link = linkOf(code);
  const rows = [
    [t('invites:code'), code],
    [t('invites:link'), link],
  ] as const;
  return (
    <Modal
      opened
      onClose={onClose}
      title={t('invites:made')}
      centered
      closeOnClickOutside={false}
      closeButtonProps={{ 'aria-label': t('shared:close') }}
    >
      <Stack>
        <Text size="sm">{t('invites:madeAbout')}</Text>
        {rows.map(([label, value]) => (
          <div key={label}>
            <Text size="sm" fw={600} mb={4}>
              {label}
            </Text>
            <Group gap="xs" wrap="nowrap">
              <Code block flex={1} className="text">
                {value}
              </Code>
              <Copy value={value} label={`${t('shared:copy')}: ${label}`} />
            </Group>
          </div>
        ))}
        <Button onClick={onClose}>{t('invites:done')}</Button>
      </Stack>
    </Modal>
  );
}

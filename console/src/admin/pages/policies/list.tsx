/** The versions of the terms and the privacy policy, and the consents to them. */
import { Anchor, Badge, Button, Select, Tabs, Text, TextInput } from '@mantine/core';
import { IconPlus } from '@tabler/icons-react';
import { Link, useNavigate } from '@tanstack/react-router';
import { useState } from 'react';
import { api, dataOf, useAction, useList } from '../../../shared/api.js';
import { Confirm } from '../../../shared/components/confirm.js';
import { DataTable } from '../../../shared/components/data-table.js';
import { PageHead } from '../../../shared/components/page-head.js';
import { Empty } from '../../../shared/components/states.js';
import { When } from '../../../shared/components/when.js';
import { oneOf, oneOfOr, useFilters } from '../../../shared/filters.js';
import { useT } from '../../../shared/i18n.js';
import { useMay } from '../../session.js';
import { Someone } from '../../someone.js';
import './texts.js';

const TABS = ['versions', 'consents'] as const;
const TYPES = ['terms', 'privacy'] as const;
type Type = (typeof TYPES)[number];
const filters = { tab: oneOfOr(TABS, 'versions'), type: oneOf(TYPES) };
const KEY = ['policies'];
const COLORS = { draft: 'gray', published: 'blue', current: 'teal' } as const;

export function PolicyStatus({ status }: { readonly status: keyof typeof COLORS }) {
  const t = useT();
  return (
    <Badge variant="dot" tt="none" color={COLORS[status]}>
      {t(`policies:statuses.${status}`)}
    </Badge>
  );
}

export default function Policies() {
  const t = useT();
  const mayAct = useMay('operator');
  const [isMaking, setMaking] = useState(false);
  const [{ tab }, setFilters] = useFilters(filters);
  return (
    <>
      <PageHead title={t('policies:title')} about={t('policies:about')}>
        {mayAct && (
          <Button leftSection={<IconPlus size={16} />} onClick={() => setMaking(true)}>
            {t('policies:create')}
          </Button>
        )}
      </PageHead>
      <Tabs
        value={tab}
        keepMounted={false}
        onChange={(next) => setFilters({ tab: (next ?? 'versions') as typeof tab })}
      >
        <Tabs.List aria-label={t('policies:sections')} mb="md">
          {TABS.map((name) => (
            <Tabs.Tab key={name} value={name}>
              {t(`policies:tabs.${name}`)}
            </Tabs.Tab>
          ))}
        </Tabs.List>
        <Tabs.Panel value="versions">
          <Versions />
        </Tabs.Panel>
        <Tabs.Panel value="consents">
          <Consents />
        </Tabs.Panel>
      </Tabs>
      {isMaking && <Make onClose={() => setMaking(false)} />}
    </>
  );
}

function Versions() {
  const t = useT();
  const list = useList(KEY, (cursor) =>
    dataOf(api.GET('/v1/admin/policies', { params: { query: { cursor } } })),
  );
  return (
    <DataTable
      label={t('policies:tabs.versions')}
      list={list}
      keyOf={({ type, version }) => `${type}/${version}`}
      columns={[
        {
          label: t('policies:type'),
          show: ({ type, version }) => (
            <Anchor component={Link} to={`/policies/${type}/${encodeURIComponent(version)}`} size="sm">
              {t(`policies:types.${type}`)}
            </Anchor>
          ),
        },
        { label: t('policies:version'), show: ({ version }) => version },
        { label: t('policies:status'), show: ({ status }) => <PolicyStatus status={status} /> },
        {
          label: t('policies:languages'),
          isMinor: true,
          show: ({ texts }) => texts.map(({ locale }) => locale).join(', ') || t('policies:noLanguages'),
        },
        { label: t('policies:created'), isMinor: true, show: ({ created_at }) => <When at={created_at} /> },
        {
          label: t('policies:currentSince'),
          isMinor: true,
          show: ({ current_at }) => <When at={current_at} />,
        },
      ]}
      empty={<Empty title={t('policies:empty')}>{t('policies:emptyAbout')}</Empty>}
    />
  );
}

function Consents() {
  const t = useT();
  const [{ type }, setFilters] = useFilters(filters);
  const list = useList(['consents', type], (cursor) =>
    dataOf(api.GET('/v1/admin/consents', { params: { query: { type, cursor } } })),
  );
  return (
    <>
      <Select
        mb="md"
        maw={260}
        label={t('policies:type')}
        allowDeselect={false}
        value={type ?? ''}
        onChange={(value) => setFilters({ type: TYPES.find((known) => known === value) })}
        data={[
          { value: '', label: t('policies:anyType') },
          ...TYPES.map((value) => ({ value, label: t(`policies:types.${value}`) })),
        ]}
      />
      <DataTable
        label={t('policies:tabs.consents')}
        list={list}
        keyOf={({ consent_id }) => consent_id}
        columns={[
          {
            label: t('policies:member'),
            show: ({ pubkey }) => <Someone pubkey={pubkey} to={`/members/${pubkey}`} />,
          },
          { label: t('policies:type'), show: (row) => t(`policies:types.${row.type}`) },
          { label: t('policies:version'), show: ({ version }) => version },
          { label: t('policies:language'), isMinor: true, show: ({ locale }) => locale },
          { label: t('policies:agreed'), show: ({ consented_at }) => <When at={consented_at} /> },
          { label: t('policies:withdrawn'), isMinor: true, show: (row) => <When at={row.withdrawn_at} /> },
        ]}
        empty={<Empty title={t('policies:noConsents')}>{t('policies:noConsentsAbout')}</Empty>}
      />
    </>
  );
}

function Make({ onClose }: { readonly onClose: () => void }) {
  const t = useT();
  const navigate = useNavigate();
  const [type, setType] = useState<Type>('terms');
  const [version, setVersion] = useState('');
  const make = useAction(
    () => dataOf(api.POST('/v1/admin/policies', { body: { type, version: version.trim() } })),
    {
      changes: [KEY],
      onDone: (made) =>
        void navigate({ to: `/policies/${made.type}/${encodeURIComponent(made.version)}` as string }),
    },
  );
  return (
    <Confirm
      opened
      title={t('policies:create')}
      action={t('policies:create')}
      isHarmless
      isBusy={make.isPending}
      isDisabled={version.trim() === ''}
      onClose={onClose}
      onConfirm={() => make.mutate(undefined)}
    >
      <Select
        label={t('policies:type')}
        allowDeselect={false}
        value={type}
        onChange={(value) => setType(value as Type)}
        data={TYPES.map((value) => ({ value, label: t(`policies:types.${value}`) }))}
      />
      <TextInput
        label={t('policies:version')}
        description={t('policies:versionAbout')}
        value={version}
        maxLength={64}
        onChange={(event) => setVersion(event.currentTarget.value)}
      />
      <Text size="sm" c="dimmed">
        {t('policies:about')}
      </Text>
    </Confirm>
  );
}

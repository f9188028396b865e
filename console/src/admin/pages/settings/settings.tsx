/** All settings, grouped by the first part of their names, with their meaning and who changed them last. */
import { Badge, Button, Group, Paper, Stack, Switch, Tabs, Text, TextInput, Title } from '@mantine/core';
import { IconSearch } from '@tabler/icons-react';
import { useQuery } from '@tanstack/react-query';
import { useState } from 'react';
import { ApiError, api, dataOf } from '../../../shared/api.js';
import { PageHead } from '../../../shared/components/page-head.js';
import { Empty, Failure, Loading } from '../../../shared/components/states.js';
import { When } from '../../../shared/components/when.js';
import { flag, oneOf, text, useFilters } from '../../../shared/filters.js';
import { number } from '../../../shared/format.js';
import { currentLanguage, useT } from '../../../shared/i18n.js';
import { useMay } from '../../session.js';
import { Someone } from '../../someone.js';
import { EditSetting } from './edit.js';
import { MEANINGS_JA } from './meanings-ja.js';
import './texts.js';

export interface Setting {
  readonly key: string;
  readonly value?: unknown;
  readonly default?: unknown;
  readonly in_force?: unknown;
  readonly ceiling?: number | boolean | null;
  readonly about: string;
  readonly version: number;
  readonly changed: { readonly by: string | null; readonly at: number } | null;
}
export type Scope = 'community' | 'node';

const filters = {
  scope: oneOf(['community', 'node']),
  q: text,
  changed: flag,
};

export const keyOfScope = (scope: Scope) => ['settings', scope] as const;

async function readSettings(scope: Scope): Promise<readonly Setting[] | null> {
  try {
    const { items } = await dataOf(
      scope === 'node' ? api.GET('/v1/admin/node-settings') : api.GET('/v1/admin/settings'),
    );
    return items;
  } catch (error) {
    // Settings of the node are for its own operators only.
    if (scope === 'node' && error instanceof ApiError && error.status === 403) return null;
    throw error;
  }
}

export default function SettingsPage() {
  const t = useT();
  const mayChange = useMay('operator');
  const meaning = useMeaning();
  const [{ scope = 'community', q = '', changed = false }, setFilters] = useFilters(filters);
  const ofNode = useQuery({
    queryKey: keyOfScope('node'),
    queryFn: () => readSettings('node'),
    enabled: mayChange,
  });
  const ofCommunity = useQuery({
    queryKey: keyOfScope('community'),
    queryFn: () => readSettings('community'),
  });
  const hasNode = ofNode.data !== undefined && ofNode.data !== null;
  const shown = scope === 'node' && hasNode ? ofNode : ofCommunity;
  return (
    <>
      <PageHead title={t('settings:title')} about={t('settings:about')} />
      {hasNode && (
        <Tabs
          value={scope}
          mb="md"
          onChange={(value) => setFilters({ scope: value === 'node' ? 'node' : undefined })}
        >
          <Tabs.List>
            <Tabs.Tab value="community">{t('settings:community')}</Tabs.Tab>
            <Tabs.Tab value="node">{t('settings:node')}</Tabs.Tab>
          </Tabs.List>
        </Tabs>
      )}
      <Group mb="lg">
        <TextInput
          type="search"
          aria-label={t('settings:search')}
          placeholder={t('settings:search')}
          leftSection={<IconSearch size={16} />}
          value={q}
          onChange={(event) => setFilters({ q: event.currentTarget.value })}
          style={{ flex: '1 1 240px', maxWidth: 420 }}
        />
        <Switch
          label={t('settings:onlyChanged')}
          checked={changed}
          onChange={(event) => setFilters({ changed: event.currentTarget.checked || undefined })}
        />
      </Group>
      {shown.isPending && <Loading />}
      {shown.isError && <Failure error={shown.error} retry={() => void shown.refetch()} />}
      {shown.data && (
        <Groups
          settings={shown.data.filter((one) => matches(one, meaning(one), q) && (!changed || isChanged(one)))}
          scope={hasNode ? scope : 'community'}
          mayChange={mayChange}
        />
      )}
    </>
  );
}

/** A value that was set to the default counts as the default. */
const isChanged = ({ value, default: byDefault }: Setting) =>
  JSON.stringify(value) !== JSON.stringify(byDefault);

/** The English words find a setting in both languages. */
function matches({ key, about }: Setting, meaning: string, words: string): boolean {
  const text = `${key} ${about} ${meaning}`.toLowerCase();
  return words
    .toLowerCase()
    .split(/\s+/)
    .every((word) => text.includes(word));
}

/** `limits.eventBytesMax` is in the group `limits`, `node.limits.eventBytesMax` too. */
const groupOf = (key: string) => key.replace(/^node\./, '').split('.')[0]!;

interface GroupsProps {
  readonly settings: readonly Setting[];
  readonly scope: Scope;
  readonly mayChange: boolean;
}

function Groups({ settings, scope, mayChange }: GroupsProps) {
  const t = useT();
  const [edited, setEdited] = useState<Setting>();
  if (settings.length === 0) return <Empty title={t('settings:nothing')}>{t('settings:nothingAbout')}</Empty>;
  const groups = new Map<string, Setting[]>();
  for (const one of settings) groups.set(groupOf(one.key), [...(groups.get(groupOf(one.key)) ?? []), one]);
  return (
    <Stack gap="xl">
      {[...groups].map(([name, own]) => (
        <section key={name} aria-labelledby={`group-${name}`}>
          <Title order={2} size="h4" mb="xs" id={`group-${name}`}>
            {name}
          </Title>
          <Stack gap="xs">
            {own.map((setting) => (
              <Row
                key={setting.key}
                setting={setting}
                {...(mayChange && { onEdit: () => setEdited(setting) })}
              />
            ))}
          </Stack>
        </section>
      ))}
      <EditSetting
        key={`${edited?.key}/${edited?.version}`}
        setting={edited}
        scope={scope}
        onClose={() => setEdited(undefined)}
      />
    </Stack>
  );
}

/** The meaning of a setting; in Japanese from this page, otherwise as the API has it. */
export function useMeaning(): (setting: Setting) => string {
  const t = useT();
  return ({ key, about }) => {
    if (currentLanguage() === 'en') return about;
    const limited = key.replace(/^node\./, '');
    const ceiling = key === limited ? undefined : t('settings:ceilingOf', { key: limited });
    return MEANINGS_JA[key] ?? ceiling ?? about;
  };
}

/** A value as people read it. */
export function useShownValue(): (value: unknown) => string {
  const t = useT();
  return (value) => {
    if (typeof value === 'boolean') return t(value ? 'settings:on' : 'settings:off');
    if (typeof value === 'number') return number(value, 3);
    if (value === '' || (Array.isArray(value) && value.length === 0)) return t('settings:empty');
    return typeof value === 'string' ? value : JSON.stringify(value);
  };
}

function Row({ setting, onEdit }: { readonly setting: Setting; readonly onEdit?: () => void }) {
  const t = useT();
  const shown = useShownValue();
  const meaning = useMeaning();
  const { key, value, changed } = setting;
  const isLimited =
    setting.in_force !== undefined && JSON.stringify(setting.in_force) !== JSON.stringify(value);
  return (
    <Paper withBorder p="sm">
      <Group justify="space-between" align="flex-start" wrap="nowrap" gap="md">
        <Stack gap={4} style={{ minWidth: 0 }}>
          <Group gap="xs">
            <Text size="sm" fw={600} className="mono" style={{ overflowWrap: 'anywhere' }}>
              {key}
            </Text>
            {isChanged(setting) && (
              <Badge variant="dot" size="sm" tt="none">
                {t('settings:changed')}
              </Badge>
            )}
          </Group>
          <Text size="sm" c="dimmed">
            {meaning(setting)}
          </Text>
          <Text size="sm" className="number text" lineClamp={4}>
            <strong>{shown(value)}</strong>{' '}
            <Text span size="xs" c="dimmed">
              {isChanged(setting)
                ? `${t('settings:default')}: ${shown(setting.default)}`
                : t('settings:isDefault')}
            </Text>
          </Text>
          {isLimited && <Text size="xs">{t('settings:inForce', { value: shown(setting.in_force) })}</Text>}
          {changed !== null && (
            <Group gap={6}>
              <Text size="xs" c="dimmed">
                {t('settings:changedBy')} <When at={changed.at} />
              </Text>
              {changed.by === null ? (
                <Text size="xs" c="dimmed">
                  {t('settings:byCommand')}
                </Text>
              ) : (
                <Someone pubkey={changed.by} />
              )}
            </Group>
          )}
        </Stack>
        {onEdit && (
          <Button
            size="xs"
            variant="default"
            style={{ flexShrink: 0 }}
            aria-label={t('settings:editNamed', { key })}
            onClick={onEdit}
          >
            {t('settings:edit')}
          </Button>
        )}
      </Group>
    </Paper>
  );
}

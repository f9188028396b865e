/** Edits one setting, with the control that fits its default, or resets it. */
import { Button, Group, JsonInput, Modal, NumberInput, Stack, Switch, Text, Textarea } from '@mantine/core';
import { useState } from 'react';
import { api, dataOf, useAction } from '../../../shared/api.js';
import { useT } from '../../../shared/i18n.js';
import { notifyDone } from '../../../shared/providers.js';
import { keyOfScope, type Scope, type Setting, useMeaning, useShownValue } from './settings.js';

interface EditProps {
  readonly setting: Setting | undefined;
  readonly scope: Scope;
  readonly onClose: () => void;
}

export function EditSetting({ setting, scope, onClose }: EditProps) {
  const t = useT();
  return (
    <Modal
      opened={setting !== undefined}
      onClose={onClose}
      title={setting?.key}
      size="lg"
      centered
      closeButtonProps={{ 'aria-label': t('shared:close') }}
    >
      {setting && <Editor setting={setting} scope={scope} onClose={onClose} />}
    </Modal>
  );
}

type Kind = 'boolean' | 'number' | 'text' | 'json';

function kindOf({ value, default: byDefault }: Setting): Kind {
  const types = new Set([typeof value, typeof byDefault]);
  if (types.size === 1 && types.has('boolean')) return 'boolean';
  if (types.size === 1 && types.has('number')) return 'number';
  return types.size === 1 && types.has('string') ? 'text' : 'json';
}

function parsed(kind: Kind, text: string): { value: unknown } | undefined {
  if (kind === 'text') return { value: text };
  try {
    return { value: JSON.parse(text) };
  } catch {
    return undefined;
  }
}

function Editor({ setting, scope, onClose }: EditProps & { readonly setting: Setting }) {
  const t = useT();
  const shown = useShownValue();
  const meaning = useMeaning();
  const { key, version } = setting;
  const kind = kindOf(setting);
  const [text, setText] = useState(
    kind === 'text' ? String(setting.value) : JSON.stringify(setting.value, null, kind === 'json' ? 2 : 0),
  );
  const changes = [keyOfScope(scope)];
  const path = { key };
  const save = useAction(
    (value: unknown) =>
      scope === 'node'
        ? dataOf(api.PUT('/v1/admin/node-settings/{key}', { params: { path }, body: { value, version } }))
        : dataOf(api.PUT('/v1/admin/settings/{key}', { params: { path }, body: { value, version } })),
    {
      changes,
      onDone: () => {
        notifyDone(t('settings:saved', { key }));
        onClose();
      },
    },
  );
  const reset = useAction(
    () =>
      scope === 'node'
        ? dataOf(api.DELETE('/v1/admin/node-settings/{key}', { params: { path, query: { version } } }))
        : dataOf(api.DELETE('/v1/admin/settings/{key}', { params: { path, query: { version } } })),
    {
      changes,
      onDone: () => {
        notifyDone(t('settings:wasReset', { key }));
        onClose();
      },
    },
  );
  const value = parsed(kind, text);
  return (
    <form
      onSubmit={(event) => {
        event.preventDefault();
        if (value !== undefined) save.mutate(value.value);
      }}
    >
      <Stack>
        <Text size="sm" c="dimmed">
          {meaning(setting)}
        </Text>
        {kind === 'boolean' && (
          <Switch
            data-autofocus
            label={key}
            checked={text === 'true'}
            onChange={(event) => setText(String(event.currentTarget.checked))}
          />
        )}
        {kind === 'number' && (
          <NumberInput
            data-autofocus
            label={t('settings:value')}
            value={text === '' ? '' : Number(text)}
            onChange={(next) => setText(String(next))}
          />
        )}
        {kind === 'text' && (
          <Textarea
            data-autofocus
            autosize
            minRows={1}
            maxRows={12}
            label={t('settings:value')}
            value={text}
            onChange={(event) => setText(event.currentTarget.value)}
          />
        )}
        {kind === 'json' && (
          <JsonInput
            data-autofocus
            autosize
            minRows={3}
            maxRows={16}
            label={t('settings:value')}
            description={t('settings:json')}
            error={value === undefined ? t('settings:notJson') : undefined}
            value={text}
            onChange={setText}
          />
        )}
        <Text size="sm">
          {t('settings:default')}: {shown(setting.default)}
        </Text>
        {setting.ceiling !== null && setting.ceiling !== undefined && (
          <Text size="sm">{t('settings:ceiling', { value: shown(setting.ceiling) })}</Text>
        )}
        <Group justify="space-between">
          <Button
            variant="default"
            disabled={version === 0}
            loading={reset.isPending}
            onClick={() => reset.mutate()}
          >
            {t('settings:reset')}
          </Button>
          <Group>
            <Button variant="default" onClick={onClose}>
              {t('shared:cancel')}
            </Button>
            <Button type="submit" loading={save.isPending} disabled={value === undefined}>
              {t('settings:save')}
            </Button>
          </Group>
        </Group>
      </Stack>
    </form>
  );
}

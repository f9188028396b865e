/**
 * Asks before something is done that cannot simply be undone. It says what will happen, in numbers, and asks
 * for a name to be typed where `name` is given.
 */
import { Button, Group, Modal, Stack, TextInput } from '@mantine/core';
import { type ReactNode, useState } from 'react';
import { useT } from '../i18n.js';

interface ConfirmProps {
  readonly opened: boolean;
  readonly title: string;
  /** What will happen. */
  readonly children: ReactNode;
  /** Has to be typed. */
  readonly name?: string;
  readonly action: string;
  readonly isBusy?: boolean;
  /** Without it the button is red. */
  readonly isHarmless?: boolean;
  readonly isDisabled?: boolean;
  readonly onConfirm: () => void;
  readonly onClose: () => void;
}

export function Confirm(props: ConfirmProps) {
  const {
    opened,
    title,
    children,
    name,
    action,
    isBusy = false,
    isHarmless = false,
    isDisabled = false,
  } = props;
  const t = useT();
  const [typed, setTyped] = useState('');
  const isTyped = name === undefined || typed.trim() === name;
  const close = () => {
    setTyped('');
    props.onClose();
  };
  return (
    <Modal
      opened={opened}
      onClose={close}
      title={title}
      centered
      closeButtonProps={{ 'aria-label': t('shared:close') }}
    >
      <form
        onSubmit={(event) => {
          event.preventDefault();
          if (!isTyped || isDisabled) return;
          setTyped('');
          props.onConfirm();
        }}
      >
        <Stack>
          {children}
          {name !== undefined && (
            <TextInput
              data-autofocus
              autoComplete="off"
              label={t('shared:typeName', { name })}
              value={typed}
              onChange={(event) => setTyped(event.currentTarget.value)}
            />
          )}
          <Group justify="flex-end">
            <Button variant="default" onClick={close}>
              {t('shared:cancel')}
            </Button>
            <Button
              type="submit"
              color={isHarmless ? undefined : 'red.8'}
              loading={isBusy}
              disabled={!isTyped || isDisabled}
            >
              {action}
            </Button>
          </Group>
        </Stack>
      </form>
    </Modal>
  );
}

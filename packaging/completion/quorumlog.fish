# Completion for fish: put it into ~/.config/fish/completions. Where nothing of ours fits, fish offers files.
function __quorumlog_complete --argument-names action
    set --local typed (commandline --current-process --cut-at-cursor | string collect)
    env _QUORUMLOG_COMPLETE=complete_fish _TYPER_COMPLETE_FISH_ACTION=$action _TYPER_COMPLETE_ARGS=$typed quorumlog
end

complete --command quorumlog --no-files \
    --condition "__quorumlog_complete is-args" --arguments "(__quorumlog_complete get-args)"
